"""Refuses inline keyboards that Telegram would refuse, and finds buttons by label."""

from __future__ import annotations

import re

from tests.kit.fakes.bot_api.refusals import misuse, stricter
from tests.kit.fakes.bot_api.shapes import Json

MAX_DATA_BYTES = 64
MAX_BUTTONS = 100
MAX_ROW = 8
LINK = re.compile(r"^(https?://|tg://)[^\s]+$")
PLAIN = frozenset({"text", "style", "icon_custom_emoji_id"})


def checked_markup(params: Json) -> Json | None:
    markup = params.get("reply_markup")
    if markup is None:
        return None
    if not isinstance(markup, dict):
        raise misuse("object expected as reply markup")
    rows = markup.get("inline_keyboard")
    if rows is None:
        return markup
    buttons = [button for row in rows for button in row]
    if len(buttons) > MAX_BUTTONS:
        raise misuse("REPLY_MARKUP_TOO_LONG")
    if any(len(row) > MAX_ROW for row in rows):
        raise stricter(f"more than {MAX_ROW} buttons in a row are dropped")
    for button in buttons:
        _check_button(button)
    return markup if buttons else None


def button_named(markup: Json | None, label: str) -> Json | None:
    rows = (markup or {}).get("inline_keyboard") or []
    found: Json | None = next((b for row in rows for b in row if b["text"] == label), None)
    return found


def _check_button(button: Json) -> None:
    if not button["text"].strip():
        raise misuse("can't parse inline keyboard button: Text buttons are unallowed in the inline keyboard")
    actions = set(button) - PLAIN
    if len(actions) != 1:
        raise misuse("can't parse inline keyboard button: Text buttons are unallowed in the inline keyboard")
    data = button.get("callback_data")
    if data is not None and not 1 <= len(data.encode()) <= MAX_DATA_BYTES:
        raise misuse("BUTTON_DATA_INVALID")
    if "url" in button and not LINK.match(button["url"]):
        raise misuse(f"inline keyboard button URL '{button['url']}' is invalid: Wrong HTTP URL")
