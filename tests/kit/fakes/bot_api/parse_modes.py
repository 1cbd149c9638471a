"""Parses markup with Telegram's own parser, if it is installed; our bot does not need it."""

from __future__ import annotations

import importlib
import json
from functools import cache
from typing import Any

from tests.kit.fakes.bot_api.refusals import misuse, stricter
from tests.kit.fakes.bot_api.shapes import Json

MODES: dict[str, Json] = {
    "html": {"@type": "textParseModeHTML"},
    "markdownv2": {"@type": "textParseModeMarkdown", "version": 2},
    "markdown": {"@type": "textParseModeMarkdown", "version": 1},
}
KINDS = {
    "textEntityTypeTextUrl": "text_link",
    "textEntityTypePreCode": "pre",
    "textEntityTypeBlockQuote": "blockquote",
    "textEntityTypeExpandableBlockQuote": "expandable_blockquote",
    "textEntityTypeMentionName": "text_mention",
    "textEntityTypeCustomEmoji": "custom_emoji",
}


def parsed(text: str, mode: str) -> tuple[str, list[Json]]:
    wish = MODES.get(mode.lower())
    if wish is None:
        raise misuse("unsupported parse_mode")
    parser = _parser()
    if parser is None:
        raise stricter("parse_mode is not for this bot: it sends entities")
    request = {"@type": "parseTextEntities", "text": text, "parse_mode": wish}
    answer = json.loads(parser.td_execute(json.dumps(request).encode()))
    if answer["@type"] == "error":
        raise misuse(f"can't parse entities: {answer['message']}")
    return answer["text"], [_entity(found) for found in answer["entities"]]


@cache
def _parser() -> Any:
    try:
        found = importlib.import_module("tdjson")
    except ImportError:
        return None
    found.td_execute(b'{"@type": "setLogVerbosityLevel", "new_verbosity_level": 0}')
    return found


def _entity(found: Json) -> Json:
    kind = found["type"]
    name = kind["@type"]
    entity: Json = {
        "type": KINDS.get(name, name.removeprefix("textEntityType").lower()),
        "offset": found["offset"],
        "length": found["length"],
    }
    if "url" in kind:
        entity["url"] = kind["url"]
    if kind.get("language"):
        entity["language"] = kind["language"]
    return entity
