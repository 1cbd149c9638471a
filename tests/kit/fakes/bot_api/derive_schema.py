"""Makes schema.json, the facts by which calls are checked, from the complete machine-readable Bot API."""

from __future__ import annotations

import argparse
import hashlib
import json
import re
from pathlib import Path

from tests.kit.fakes.bot_api.shapes import Json

FULL = Path(__file__).resolve().parents[5] / "shared" / "data" / "telegram-bot-api.json"
DERIVED = Path(__file__).with_name("schema.json")
METHODS = (
    "getMe", "getUpdates", "setWebhook", "deleteWebhook", "getWebhookInfo", "logOut", "close",
    "sendMessage", "editMessageText", "editMessageReplyMarkup", "deleteMessage", "deleteMessages",
    "sendChatAction", "setMessageReaction", "stopMessageLiveLocation", "answerCallbackQuery", "sendDocument",
    "sendPhoto", "sendVoice",
    "sendMediaGroup", "getFile", "pinChatMessage", "unpinChatMessage", "getChat", "getChatMember",
    "leaveChat", "createForumTopic", "editForumTopic", "setMyCommands", "getMyCommands",
    "deleteMyCommands", "setMyDescription", "setMyShortDescription", "setChatMenuButton",
    "answerInlineQuery", "answerGuestQuery", "getBusinessConnection", "sendMessageDraft", "sendRichMessage",
    "sendRichMessageDraft",
)  # fmt: skip
SIMPLE = frozenset({"Integer", "Float", "String", "Boolean", "True", "InputFile"})
OURS = {"InlineQueryResult": ["InlineQueryResultArticle"], "InputMessageContent": ["InputTextMessageContent"]}
"""Kinds that the fake accepts of types with many kinds; it refuses others, which our bot does not send."""
EXTRA_TYPES = ("RichBlock", "RichText")
"""Types of answers in version 10.1 from which the typed blocks of version 10.2 are made."""
CONSTANT = re.compile(r"(?:always|must be) [“\"]?([a-z_]+)[”\"]?(?:$|[.,])")
EMOJI = re.compile(r"[“\"]([^”\" a-z]+)[”\"]")


def derived(raw: bytes) -> Json:
    full = json.loads(raw)
    types: Json = {}
    unions: Json = {}
    methods = {name: _fields(full["methods"][name]) for name in METHODS}
    waiting = [kind for fields in methods.values() for kind in _kinds(fields)] + list(EXTRA_TYPES)
    while waiting:
        name = waiting.pop()
        if name in SIMPLE or name in types or name in unions:
            continue
        described = full["types"][name]
        if described.get("subtypes"):
            unions[name] = [kind for kind in described["subtypes"] if name not in OURS or kind in OURS[name]]
            waiting += [kind.removeprefix("Array of ") for kind in unions[name]]
        else:
            types[name] = _fields(described)
            waiting += _kinds(types[name])
    return {
        "source": "the full machine-readable Bot API reference; see derive_schema.py",
        "version": full["version"],
        "sha256": hashlib.sha256(raw).hexdigest(),
        "methods": methods,
        "types": dict(sorted(types.items())),
        "unions": dict(sorted(unions.items())),
        "reactions": EMOJI.findall(
            next(f for f in full["types"]["ReactionTypeEmoji"]["fields"] if f["name"] == "emoji")[
                "description"
            ]
        ),
        "updates": [f["name"] for f in full["types"]["Update"]["fields"] if f["name"] != "update_id"],
    }


def _fields(described: Json) -> Json:
    """Return the fields by name as [types, required], with the only allowed value as third item if there is
    one.
    """
    found: Json = {}
    for field in described.get("fields", []):
        row: list[object] = ["|".join(field["types"]), bool(field["required"])]
        constant = CONSTANT.search(field["description"])
        if field["name"] in ("type", "source") and constant:
            row.append(constant.group(1))
        found[field["name"]] = row
    return found


def _kinds(fields: Json) -> list[str]:
    return [
        re.sub(r"^(Array of )+", "", kind)
        for row in fields.values()
        for kind in row[0].split("|")
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.kit.fakes.bot_api.derive_schema")
    parser.add_argument("full", nargs="?", type=Path, default=FULL)
    arguments = parser.parse_args()
    found = derived(arguments.full.read_bytes())
    lines = json.dumps(found, ensure_ascii=False, separators=(",", ":"))
    lines = re.sub(r'("(?:\w+)":\{"|"(?:methods|types|unions|reactions|updates)":)', r"\n\1", lines)
    DERIVED.write_text(lines.lstrip() + "\n", encoding="utf-8")
    print(f"{DERIVED}: {len(found['methods'])} methods, {len(found['types'])} types")


if __name__ == "__main__":
    main()
