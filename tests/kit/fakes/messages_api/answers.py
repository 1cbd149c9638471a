"""Combines a scripted action with the fake model's mind into the answer that is sent."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from tests.kit.fakes.messages_api import brain, reader
from tests.kit.fakes.messages_api.brain import Answer
from tests.kit.fakes.messages_api.refusals import NO_CREDIT, USUAL_MESSAGE, Refusal, too_long
from tests.kit.fakes.messages_api.shapes import Json
from tests.kit.fakes.messages_api.signatures import Signatures

PROSE = (
    "Sure! Here is a friendly summary of what was said. It was a pleasant conversation about several things."
)
THOUGHT = "The newest message decides; look for what was said about it."


WORDS = PROSE.replace(".", "").replace("!", "").lower().split()
PARAGRAPH_WORDS = 60

Mind = Callable[[Json], Answer]
"""Function that makes the answer to a request for which the script has no rule."""


def answered(body: Json, action: Json, signatures: Signatures, mind: Mind = brain.answer) -> Answer:
    """Return the answer to a request, as the action of the script and the mind decide.

    A thinking block is added if the request or the action asks for it.
    """
    answer = _content(body, action, mind)
    answer = brain.gone_on(body, brain.paused(answer) if action.get("pause") else answer)
    thought = action.get("thinking") or (THOUGHT if _thinks(body) else None)
    if thought and answer.blocks:
        block = {"type": "thinking", "thinking": thought, "signature": signatures.sign(body, thought)}
        return replace(answer, blocks=(block, *answer.blocks))
    return answer


def lengthened(answer: Answer, chars: int) -> Answer:
    """Add prose to an answer of one text, up to `chars` characters in all.

    The same text is always lengthened in the same way.
    """
    if [block["type"] for block in answer.blocks] != ["text"]:
        return answer
    text = answer.blocks[0]["text"]
    chance = random.Random(text)
    wanted = chance.randint(chars // 4, chars)
    while len(text) < wanted:
        text += "\n\n" + " ".join(chance.choices(WORDS, k=PARAGRAPH_WORDS)) + "."
    return brain.said(text)


def scripted_refusal(action: Json, *, input_tokens: int, window: int) -> Refusal | None:
    """Return the error that the action prescribes; None if it prescribes no status."""
    status = action.get("status")
    if status is None:
        return None
    message = USUAL_MESSAGE.get(status, "Error")
    if action.get("reason") == "too_long":
        message = too_long(max(input_tokens, window + 1), window)
    elif action.get("reason") == "credit":
        message = NO_CREDIT
    return Refusal(action.get("message", message), status=status, retry_after=action.get("retry_after"))


def _content(body: Json, action: Json, mind: Mind) -> Answer:
    if body["max_tokens"] == 0 or action.get("empty"):
        return brain.said("")
    if action.get("refusal"):
        return Answer(blocks=(), stop_reason="refusal")
    if "tool_use" in action and "web_search" in action:
        searched = brain.searched(body, action["web_search"], action.get("text", PROSE))
        asked = brain.calls(body, [(call["name"], call.get("input", {})) for call in action["tool_use"]])
        return replace(asked, blocks=(*searched.blocks, *asked.blocks))
    if "tool_use" in action:
        return brain.calls(body, [(call["name"], call.get("input", {})) for call in action["tool_use"]])
    if "web_search" in action:
        return brain.searched(body, action["web_search"], action.get("text", PROSE))
    if "odd_block" in action:
        return replace(brain.said(action.get("text", PROSE)), blocks=(
            action["odd_block"], {"type": "text", "text": action.get("text", PROSE)},
        ))  # fmt: skip
    if action.get("read"):
        return reader.read(body)
    if "text" in action:
        return brain.said(action["text"])
    return brain.said(PROSE) if action.get("prose") else mind(body)


def _thinks(body: Json) -> bool:
    return (body.get("thinking") or {}).get("type") in ("enabled", "adaptive")
