"""The demo that answers without a provider: honest, deterministic, and without intelligence."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shared.adapters.models.offline_summary import asks_for_summary, summary
from shared.adapters.models.offline_texts import text_summary
from shared.adapters.models.offline_words import (
    FOUND,
    KEPT,
    NOTHING,
    OWN_PHRASES,
    SAVED,
    TOOL_CALL,
    best_match,
    inside_tags,
    kind_of,
    outside_tags,
    salience,
    sentences,
    shortened,
    unique,
    without_sources,
)
from shared.core.compaction.summary_prompts import asks_for_text
from shared.core.context.prompts import reminded_of
from shared.core.tools.reminders import told_words
from shared.core.values.errors import PromptTooLong
from shared.core.values.messages import Block, Message, Text, ToolResult, ToolUse, block_to_json, text_of
from shared.core.values.tokens import estimate_messages, estimate_system, estimate_tools
from shared.ports import ModelCard, ModelReply, ModelRequest, OnText, Prices, TokenCounter, ToolSpec, Usage

OFFLINE_MODEL = "offline-demo"
WINDOW = 200_000
MAX_OUTPUT = 8_192
PIECE_SECONDS = 0.015
SAVE_TOOL = "save_memory"
INTRODUCTION = (
    "Hello! I am the offline demo of Evertalk: no model is behind me, so I only repeat what I find in our "
    "conversation. For real answers, run `./evertalk setup` and add a provider's key."
)

_OWN_PHRASES = (*OWN_PHRASES, *sentences(INTRODUCTION)[1:])
_REMEMBER = re.compile(
    r"\b(?:remember|memori[sz]e|don't forget|do not forget|note that|make a note|keep in mind)\b",
    re.IGNORECASE,
)
_ASKS_BACK = re.compile(r"\b(?:do|did|can|could) you (?:still )?remember\b(?! that\b)", re.IGNORECASE)
_LEAD_IN = re.compile(rf"^.*?{_REMEMBER.pattern}[\s:,]*(?:that\b|to\b)?[\s:,]*", re.IGNORECASE)
_FLUSH_WORD = re.compile(r"\bSILENT\b")
_SEQ = re.compile(r"\[#(\d+)")
_PIECE = re.compile(r"\S+\s*|\s+")
_MAX_SAVED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Situation:
    """What the request comes down to for one without understanding."""

    words: str
    """The newest words of the person, with everything in tags taken out."""
    whole: str
    results: tuple[ToolResult, ...]
    """Tool results that arrived after those words."""
    save: ToolSpec | None


class OfflineModel:
    def __init__(
        self, counter: TokenCounter, *, window: int = WINDOW, piece_seconds: float = PIECE_SECONDS
    ) -> None:
        self._counter = counter
        self._window = window
        self._piece_seconds = piece_seconds

    async def load_card(self, model: str) -> ModelCard:
        return ModelCard(
            name=model,
            window=self._window,
            max_output=min(MAX_OUTPUT, self._window // 2),
            window_known=True,
            prices=Prices(input=0.0, output=0.0, cache_read=0.0, cache_write=0.0, dated="never changes"),
            capabilities=frozenset({"tools", "count_tokens", "json"}),
            offline=True,
            token_factor=1.0,
        )

    async def reply(self, request: ModelRequest, *, on_text: OnText | None = None) -> ModelReply:
        tokens = self._input_tokens(request)
        if tokens > self._window:
            raise PromptTooLong(f"{tokens} > {self._window}", tokens=tokens, maximum=self._window)
        blocks = answer(request)
        if on_text is not None:
            await self._tell(text_of(blocks), on_text, paced=not _for_a_program(request))
        return ModelReply(
            blocks=blocks,
            usage=Usage(input_tokens=tokens, output_tokens=self._tokens(_said(blocks))),
            stop_reason="tool_use" if any(isinstance(block, ToolUse) for block in blocks) else "end_turn",
            model=request.model,
            request_id=f"offline-{_digest(request.messages)}",
        )

    async def count_tokens(self, request: ModelRequest) -> int | None:
        return self._input_tokens(request)

    async def close(self) -> None:
        pass

    async def _tell(self, text: str, on_text: OnText, *, paced: bool) -> None:
        """Piece by piece, as people read; programs do not read."""
        for piece in _PIECE.findall(text):
            if self._piece_seconds and paced:
                await asyncio.sleep(self._piece_seconds)
            await on_text(1, piece)

    def _input_tokens(self, request: ModelRequest) -> int:
        """The demo's provider counts as the meter does, so that its gauge is exact."""
        count = self._tokens
        return (
            estimate_system(request.system, count)
            + estimate_tools(request.tools, count)
            + estimate_messages(request.messages, count)
        )

    def _tokens(self, text: str) -> int:
        return self._counter.count_tokens(text) if text else 0


def _for_a_program(request: ModelRequest) -> bool:
    whole = _situation(request).whole
    return asks_for_summary(whole) or asks_for_text(whole)


def answer(request: ModelRequest) -> tuple[Block, ...]:
    """What the demo says to this request; the same request gets the same answer."""
    now = _situation(request)
    if asks_for_summary(now.whole):
        return (Text(text=summary(_whole_request(request))),)
    if asks_for_text(now.whole):
        return (Text(text=text_summary(_whole_request(request))),)
    if now.save is not None and _FLUSH_WORD.search(now.whole):
        return _flush(request, now)
    if (reminder := reminded_of(now.words)) is not None:
        return (Text(text=told_words(reminder)),)
    if now.save is not None and _REMEMBER.search(now.words) and not _ASKS_BACK.search(now.words):
        return _remember(request, now)
    return (Text(text=_introduced(request, _chat(request, now))),)


def _whole_request(request: ModelRequest) -> str:
    """All that was asked: a request to mend a summary leaves the transcript to the message before it."""
    return "\n\n".join(text_of(message.blocks) for message in request.messages if message.role == "user")


def _situation(request: ModelRequest) -> _Situation:
    results: list[ToolResult] = []
    whole = ""
    for message in reversed(request.messages):
        if message.role != "user":
            continue
        whole = text_of(message.blocks)
        results += [block for block in message.blocks if isinstance(block, ToolResult)]
        if whole.strip():
            break
    save = next((tool for tool in request.tools if tool.name == SAVE_TOOL), None)
    return _Situation(words=outside_tags(whole) or whole, whole=whole, results=tuple(results), save=save)


def _flush(request: ModelRequest, now: _Situation) -> tuple[Block, ...]:
    """Up to three weighty sentences of the person that no note holds yet."""
    if now.results or now.save is None:
        return (Text(text="SILENT"),)
    known = "\n".join(part.text for part in request.system).casefold()
    said = _persons_sentences(request.messages[:-1])
    fresh = [item for item in said if salience(item[0]) > 1 and item[0].casefold() not in known]
    best = sorted(enumerate(fresh), key=lambda item: (-salience(item[1][0]), -item[0]))[:_MAX_SAVED]
    chosen = [item for _, item in sorted(best)]
    return _saves(request, now.save, chosen) if chosen else (Text(text="SILENT"),)


def _persons_sentences(messages: Sequence[Message]) -> list[tuple[str, tuple[int, ...]]]:
    found: dict[str, tuple[str, tuple[int, ...]]] = {}
    for message in messages:
        if message.role == "user":
            text = text_of(message.blocks)
            seqs = tuple(int(seq) for seq in _SEQ.findall(text))
            for sentence in sentences(outside_tags(text)):
                found.setdefault(sentence.casefold(), (sentence, seqs))
    return list(found.values())


def _remember(request: ModelRequest, now: _Situation) -> tuple[Block, ...]:
    marked = next((line for line in sentences(now.words) if _REMEMBER.search(line)), now.words)
    wish = _LEAD_IN.sub("", marked).strip() or marked
    if not now.results and now.save is not None:
        return _saves(request, now.save, [(wish, ())])
    failed = next((result.text for result in now.results if result.is_error), None)
    if failed:
        return (Text(text=f"I could not save that: {shortened(failed, 200)}"),)
    return (Text(text=_introduced(request, f"{SAVED}“{shortened(wish, 200)}”")),)


def _chat(request: ModelRequest, now: _Situation) -> str:
    asked = [line for line in sentences(now.words) if line.endswith(("?", "？"))]
    if not asked:
        return f"{KEPT}“{shortened(' '.join(now.words.split()), 120)}”"
    found = best_match(asked[-1], _evidence(request, now))
    if found is None:
        return NOTHING
    return f"{FOUND}“{shortened(found, 400)}”"


def _evidence(request: ModelRequest, now: _Situation) -> tuple[str, ...]:
    """Every statement of notes, summary, tool results and talk, oldest first; questions prove nothing."""
    texts = [inside_tags(part.text) for part in request.system]
    for message in request.messages:
        for block in message.blocks:
            match block:
                case Text(text=text) | ToolResult(text=text):
                    texts += [inside_tags(text), outside_tags(text)]
                case _:
                    pass
    own = {line.casefold() for line in sentences(now.words)}
    said = unique(without_sources(line) for text in texts for line in sentences(text))
    return tuple(
        line
        for line in said
        if kind_of(line) != "question"
        and line.casefold() not in own
        and not line.startswith((*_OWN_PHRASES, TOOL_CALL))
    )


def _introduced(request: ModelRequest, text: str) -> str:
    """The very first answer of a conversation says what this is."""
    spoken = any(message.role == "assistant" and text_of(message.blocks) for message in request.messages)
    summarised = any("<conversation_summary" in text_of(message.blocks) for message in request.messages)
    return text if spoken or summarised else f"{INTRODUCTION}\n\n{text}"


def _saves(
    request: ModelRequest, tool: ToolSpec, notes: Sequence[tuple[str, tuple[int, ...]]]
) -> tuple[Block, ...]:
    base = _digest(request.messages)
    return tuple(
        ToolUse(id=f"toolu_{base}{number}", name=tool.name, input=_filled(tool.input_schema, text, seqs))
        for number, (text, seqs) in enumerate(notes)
    )


def _filled(schema: Mapping[str, Any], text: str, seqs: tuple[int, ...]) -> dict[str, Any]:
    """Arguments that satisfy the tool's schema: the words where a text is wanted, else the plainest value."""
    fields: Mapping[str, Mapping[str, Any]] = schema.get("properties", {})
    wanted = set(schema.get("required", ())) | ({"text", "kind", "sources"} & set(fields))
    return {name: _value(name, fields[name], text, seqs) for name in fields if name in wanted}


def _value(name: str, field: Mapping[str, Any], text: str, seqs: tuple[int, ...]) -> Any:
    choices = field.get("enum")
    if choices:
        kind = kind_of(text)
        return kind if kind in choices else "fact" if "fact" in choices else choices[0]
    match field.get("type"):
        case "array":
            return list(seqs) if name == "sources" else []
        case "integer" | "number":
            return field.get("minimum", 1)
        case "boolean":
            return False
        case "object":
            return {}
        case _:
            return "the person" if name == "subject" else shortened(text, int(field.get("maxLength", 400)))


def _said(blocks: Sequence[Block]) -> str:
    return "\n".join(
        block.text if isinstance(block, Text) else _json(block_to_json(block)) for block in blocks
    )


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _digest(messages: Sequence[Message]) -> str:
    told = _json([[message.role, [block_to_json(block) for block in message.blocks]] for message in messages])
    return hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()[:20]
