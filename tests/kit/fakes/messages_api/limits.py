"""Cuts an answer where it has to end: at `max_tokens`, at the context window, or at a stop sequence."""

from __future__ import annotations

from tests.kit.fakes.messages_api import tokens
from tests.kit.fakes.messages_api.brain import Answer
from tests.kit.fakes.messages_api.shapes import Json


def output_tokens(blocks: tuple[Json, ...]) -> int:
    return max(1, sum(tokens.block_tokens(block) for block in blocks))


def within_limits(answer: Answer, body: Json, *, input_tokens: int, window: int) -> Answer:
    """Return the answer cut to the request's limits, with the matching stop reason."""
    answer = _stopped(answer, body.get("stop_sequences") or [])
    room, allowed = window - input_tokens, body["max_tokens"]
    if output_tokens(answer.blocks) <= min(room, allowed) and allowed:
        return answer
    reason = "model_context_window_exceeded" if room < allowed else "max_tokens"
    return Answer(blocks=_cut(answer.blocks, min(room, allowed)), stop_reason=reason)


def _cut(blocks: tuple[Json, ...], room: int) -> tuple[Json, ...]:
    """Return the blocks that fit into `room` tokens.

    A text is cut in its middle; another block that does not fit is left out, with all blocks after it.
    """
    kept: list[Json] = []
    for block in blocks:
        cost = tokens.block_tokens(block)
        if cost > room:
            text = tokens.text_within(block["text"], room - 4) if block["type"] == "text" else ""
            return (*kept, {"type": "text", "text": text}) if text else tuple(kept)
        kept.append(block)
        room -= cost
    return tuple(kept)


def _stopped(answer: Answer, stops: list[str]) -> Answer:
    kept: list[Json] = []
    for block in answer.blocks:
        text = block.get("text", "") if block["type"] == "text" else ""
        hits = [(text.index(stop), stop) for stop in stops if stop in text]
        if hits:
            at, stop = min(hits)
            before = ({"type": "text", "text": text[:at]},) if text[:at] else ()
            return Answer(blocks=(*kept, *before), stop_reason="stop_sequence", stop_sequence=stop)
        kept.append(block)
    return answer
