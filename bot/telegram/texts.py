"""Builds messages of the bot from its translated texts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from shared.adapters.postgres.telegram.chats import ChatRow
from shared.core.commands.public_messages import advice_for_public
from shared.core.commands.texts import bullets
from shared.locales import Catalogue, catalogue

Markdown: TypeAlias = str
"""Markdown text that `markup.render` can parse."""
Plain: TypeAlias = str
"""Text without markup for button labels, notes and answers to a button press, at most 200 characters long."""

_SPECIAL_CHARS = re.compile(r"[!-'*-/:-@\[-`{-~]")
_EXAMPLES = ("example_cooking", "example_tides", "example_customer")
_USED = re.compile(r"\$(\d+\.\d\d) of \$(\d+\.\d\d) used")
"""Spent and allowed dollars in the English text of a reached spending cap; the error has no fields for them.
"""
_WITH_FIGURES = frozenset({"cap_reached", "hour_cap_reached", "context_budget_exceeded", "message_too_long"})
"""Codes of errors whose own English text is shown instead of the translated one, since it has more details.
"""


def get_texts(tag: str) -> Catalogue:
    """Return the bot's texts for Telegram's `language_code` or another tag; English if unknown or empty."""
    return catalogue("telegram", tag)


def get_chat_texts(chat: ChatRow) -> Catalogue:
    """Return the bot's texts in the language that the chat chose, else in its person's app language."""
    return get_texts(get_chat_language(chat.settings))


def get_command_texts(chat: ChatRow) -> Catalogue:
    """Return the texts of commands in the chat's language."""
    return catalogue("commands", get_chat_language(chat.settings))


def get_chat_language(settings: Mapping[str, object]) -> str:
    """Return the language tag that the chat chose, else that of the person's app, else `en`."""
    return str(settings.get("language") or settings.get("app_language") or "en")


def escape_markdown(text: str, *, most: int = 60) -> Markdown:
    """Return a name as one line of Markdown text, escaped and cut to `most` characters."""
    line = " ".join(text.split())
    short = line if len(line) <= most else line[: most - 1].rstrip() + "…"
    # Entities instead of backslashes: the renderer reads \[x\] as a formula.
    return _SPECIAL_CHARS.sub(lambda mark: f"&#{ord(mark[0])};", short)


def say_hello(texts: Catalogue, *, name: str = "", demo: bool = False, public: bool = False) -> Markdown:
    """Return the greeting for a person with access; with `demo` it says that no real model answers.

    `name` is the person's name, empty to leave it out. `public` means that anyone may use the bot.
    """
    hello = (
        texts.say("hello_name", name=escape_markdown(name, most=40)) if name.strip() else texts.say("hello")
    )
    who = texts.say("who_public" if public else "who")
    lines = [
        f"{hello} {who} {texts.say('write_to_me')}",
        bullets([texts.say(example) for example in _EXAMPLES]),
        texts.say("see_help"),
    ]
    if demo:
        lines.append(" ".join(texts.say(key) for key in ("demo", *(() if public else ("demo_advice",)))))
    return "\n\n".join(lines)


def say_hello_to_group(texts: Catalogue, *, username: str, reads_all_messages: bool) -> Markdown:
    """Return the greeting for a group; `reads_all_messages` means that Telegram's privacy mode is off."""
    hello = texts.say("hello_group", username=escape_markdown(username))
    return f"{hello} {explain_privacy(texts, reads_all_messages=reads_all_messages)}"


def explain_privacy(texts: Catalogue, *, reads_all_messages: bool) -> Markdown:
    """Return a sentence that says whether the bot sees all messages of a group or only those addressed to
    it.
    """
    return texts.say("group_hears_all" if reads_all_messages else "group_hears_little")


def list_commands(texts: Catalogue, commands: Sequence[tuple[str, str]], *, groups: str = "") -> Markdown:
    """Return the help text as a list; `commands` are pairs of a call such as `/new` and its description.

    `groups` is a closing paragraph about groups, empty for none.
    """
    rows = [f"{escape_markdown(call)} – {escape_markdown(what, most=200)}" for call, what in commands]
    return "\n\n".join([texts.say("help_head"), bullets(rows), *([groups] if groups else [])])


def describe_work(texts: Catalogue, tool: str, subject: str) -> Plain:
    """Return the line to show while a tool runs; `subject` is the host or MCP server, empty if unknown."""
    key = f"tool_{tool}"
    needs_subject = tool in ("fetch_url", "mcp")
    return texts.say(key if key in texts and (subject or not needs_subject) else "busy", subject=subject)


def explain_unreadable(texts: Catalogue, kind: str) -> Markdown:
    """Return the explanation why the bot cannot read a message of `kind`, such as voice, video or sticker."""
    key = f"cannot_read_{kind}"
    return texts.say(key if key in texts else "cannot_read_anything_else")


def explain_failure(texts: Catalogue, *, code: str, advice: str, public: bool) -> Markdown:
    """Return one line that says why a turn failed.

    `code` is the code of the error, `advice` its own English text. `public` selects a text without internals.
    """
    if public and (text := advice_for_public(code, texts.language)):
        return text
    key = f"notice_{code}"
    if texts.language == "en" and (code in _WITH_FIGURES or key not in texts):
        return advice
    if code == "cap_reached" and (found := _USED.search(advice)) is not None:
        used, cap = (texts.dollars(round(float(dollars) * 1e6)) for dollars in found.groups())
        return texts.say("notice_cap_reached_used", used=used, cap=cap)
    return texts.say(key if key in texts else "notice_error")
