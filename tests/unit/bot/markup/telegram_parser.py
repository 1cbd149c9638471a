"""Telegram's own parser as a judge: our entities are written as HTML, and must come back the same."""

from __future__ import annotations

import html
import json
from functools import cache
from typing import Any

import pytest

from bot.telegram.markup.entity_text import MessagePart, RenderedText, TextEntity

_TAGS = {"bold": "b", "italic": "i", "strikethrough": "s", "code": "code", "blockquote": "blockquote"}
_TYPES = {
    "textEntityTypeBold": "bold",
    "textEntityTypeItalic": "italic",
    "textEntityTypeStrikethrough": "strikethrough",
    "textEntityTypeCode": "code",
    "textEntityTypeBlockQuote": "blockquote",
    "textEntityTypePre": "pre",
    "textEntityTypePreCode": "pre",
    "textEntityTypeTextUrl": "text_link",
}


@cache
def _library() -> Any:
    tdjson = pytest.importorskip(
        "tdjson", reason="tdjson (Telegram's own parser) has no wheel for this machine"
    )
    tdjson.td_execute(b'{"@type":"setLogVerbosityLevel","new_verbosity_level":0}')
    return tdjson


def _parse(markup: str) -> dict[str, Any]:
    request = {"@type": "parseTextEntities", "text": markup, "parse_mode": {"@type": "textParseModeHTML"}}
    answer: dict[str, Any] = json.loads(_library().td_execute(json.dumps(request).encode()))
    return answer


def judge(message: RenderedText | MessagePart) -> None:
    """Fails unless Telegram reads the message exactly as we mean it."""
    answer = _parse(as_html(message))
    assert answer["@type"] == "formattedText", (answer, message)
    assert answer["text"] == message.text
    check_nesting(message.entities)
    assert sorted(map(_told, answer["entities"])) == sorted(map(_meant, message.entities)), message


def check_nesting(entities: tuple[TextEntity, ...]) -> None:
    """What Telegram would mend in silence after parsing, the parser alone does not tell."""
    for number, outer in enumerate(entities):
        for inner in entities[number + 1 :]:
            if inner.offset >= outer.end:
                break
            assert outer.offset <= inner.offset, "not sorted"
            assert inner.end <= outer.end, f"{outer} crosses {inner}"
            assert outer.type not in ("code", "pre", inner.type), f"{inner} within {outer}"
            assert inner.type != "pre", f"{inner} within {outer}"
            assert inner.type != "code" or outer.type == "blockquote", f"{inner} within {outer}"


def _told(entity: dict[str, Any]) -> tuple[int, int, str, str]:
    kind = entity["type"]
    detail = kind.get("url") or kind.get("language") or ""
    return entity["offset"], entity["length"], _TYPES[kind["@type"]], detail


def _meant(entity: TextEntity) -> tuple[int, int, str, str]:
    detail = (normal_url(entity.url) if entity.url else entity.language) or ""
    if entity.url:
        assert detail.startswith(entity.url.partition(":")[0].lower()), f"{entity.url} would become {detail}"
    return entity.offset, entity.length, entity.type, detail


@cache
def normal_url(url: str) -> str | None:
    """As Telegram stores it; None when it would take the link away."""
    entities = _parse(f'<a href="{html.escape(url)}">x</a>')["entities"]
    return str(entities[0]["type"]["url"]) if entities else None


def as_html(message: RenderedText | MessagePart) -> str:
    raw = message.text.encode("utf-16-le")
    written: list[str] = []
    stack: list[TextEntity] = []
    at = 0

    def text_until(offset: int) -> None:
        nonlocal at
        written.append(html.escape(raw[2 * at : 2 * offset].decode("utf-16-le"), quote=False))
        at = offset

    def close_until(offset: int) -> None:
        while stack and stack[-1].end <= offset:
            text_until(stack[-1].end)
            written.append(_closing(stack.pop()))

    for entity in message.entities:
        close_until(entity.offset)
        text_until(entity.offset)
        written.append(_opening(entity))
        stack.append(entity)
    close_until(len(raw) // 2)
    text_until(len(raw) // 2)
    return "".join(written)


def _opening(entity: TextEntity) -> str:
    if entity.type == "text_link":
        return f'<a href="{html.escape(entity.url or "")}">'
    if entity.type == "pre":
        return f'<pre><code class="language-{entity.language}">' if entity.language else "<pre>"
    return f"<{_TAGS[entity.type]}>"


def _closing(entity: TextEntity) -> str:
    if entity.type == "pre":
        return "</code></pre>" if entity.language else "</pre>"
    return "</a>" if entity.type == "text_link" else f"</{_TAGS[entity.type]}>"
