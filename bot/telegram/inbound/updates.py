"""Values of incoming messages, and the text that a model reads: authors, quotes, forwards, descriptions of
files.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from typing import Literal

from aiogram.types import Update

from bot.telegram.markup.entity_text import MESSAGE_UNITS
from shared.core.context import untrusted_text
from shared.core.context.untrusted_text import strip_marks
from shared.core.session.turns import utf16_units

ChatKind = Literal["private", "group", "supergroup", "channel"]
"""Kind of a chat, as Telegram names it."""
MediaKind = Literal[
    "photo", "document", "voice", "audio", "video", "video_note", "animation", "sticker", "location",
    "contact", "poll", "dice", "checklist", "other",
]  # fmt: skip
"""Kind of what a message has besides text; `other` is content that the bot does not know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BotIdentity:
    """Identity of a bot, and what it is allowed to answer."""

    bot_id: int
    username: str
    reads_all_messages: bool = False
    """Whether privacy mode is off, so that the bot gets all messages of its groups."""
    reads_channels: bool = False
    """Whether the operator lets the bot answer posts of channels."""
    answers_inline: bool = False
    """Whether the operator lets people ask the bot from other chats by inline queries."""
    has_topics: bool = False
    """Whether private chats with the bot have topics."""
    answers_guests: bool = False
    """Whether the operator lets people ask the bot in chats where it is no member."""
    is_secretary: bool = False
    """Whether the operator lets the bot write drafts for owners of business accounts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRef:
    """Chat, or one topic in it."""

    chat_id: int
    thread_id: int = 0
    """Id of the topic; 0 for a chat without topics and for the General topic."""
    kind: ChatKind = "private"
    is_forum: bool = False
    title: str = ""
    """Title of the chat; in a private chat the person's name."""
    topic: str = ""
    """Name of the topic if the message contains it, else empty."""

    @property
    def is_private(self) -> bool:
        """Whether this is a chat with a single person."""
        return self.kind == "private"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageAuthor:
    """Author of a message; an anonymous administrator has the name of the group."""

    user_id: int
    name: str
    username: str = ""
    language_code: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Media:
    """File of a message, or other content such as a location, which `note` describes."""

    kind: MediaKind
    file_id: str = ""
    unique_id: str = ""
    size: int | None = None
    """Size in bytes as stated by Telegram; None if unknown."""
    name: str = ""
    mime: str = ""
    width: int = 0
    height: int = 0
    seconds: int | None = None
    """Length of a recording in seconds as stated by Telegram; None if unknown."""
    note: str = ""
    """Description of content without a file, or the emoji of a sticker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardOrigin:
    """Author of a forwarded message; `from_this_bot` says whether this bot wrote it."""

    name: str
    from_this_bot: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotedMessage:
    """Message that a person replied to, or the part of it that the person selected."""

    author: str
    text: str
    chosen: bool = False
    """Whether `text` is only the part that the person selected."""
    by_bot: bool = False
    """Whether this bot wrote the message."""
    own: bool = False
    """Whether the person replied to their own message."""
    elsewhere: bool = False
    """Whether the message is in another chat or topic."""
    media: MediaKind | None = None
    attachment: Media | None = None
    """File or other content of the message; the model gets a file as if it came with the reply.

    None without.
    """
    whole: str = ""
    """Whole text of the message if `text` is a selected part, else empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedCommand:
    """Command `/name@bot args` as it was typed, whether or not the bot knows it.

    Both flags are False if the command names no bot.
    """

    name: str
    args: str = ""
    is_for_other_bot: bool = False
    is_for_this_bot: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingMessage:
    """New or edited message of a person."""

    update_id: int
    chat: ChatRef
    sender: MessageAuthor
    message_id: int
    sent_at: datetime
    text: str = ""
    """Text of the message, or the caption of its file."""
    media: Media | None = None
    media_group_id: str = ""
    forward_origin: ForwardOrigin | None = None
    quoted: QuotedMessage | None = None
    reply_to_message_id: int | None = None
    """Id of the message in the same chat that this one replies to; None without a reply."""
    replies_to_bot: bool = False
    mentions_bot: bool = False
    command: ParsedCommand | None = None
    deep_link: str = ""
    """Argument of `/start` from a link, at most 64 of A-Z a-z 0-9 _ -; empty without one."""
    is_edited: bool = False
    update: Update | None = field(default=None, compare=False, repr=False)
    """The update as parsed by aiogram, for its routers; None in tests."""

    @property
    def is_addressed(self) -> bool:
        """Whether a message in a group is meant for this bot: by a command, a mention or a reply."""
        if self.command is not None:
            return not self.command.is_for_other_bot
        return self.mentions_bot or self.replies_to_bot


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoredUpdate:
    """Update that is not used; `reason` is for operators and quotes no text of a person."""

    update_id: int
    reason: str


IncomingUpdate = IncomingMessage | Update | IgnoredUpdate
"""Parsed update: a message for the batcher, another update for the routers, or an ignored one."""


# -- how a model reads messages ------------------------------------------------------------------------------

QUOTE_CHARS = 2_000
"""Maximum characters of a quoted message."""
OWN_ANSWER_CHARS = 400
"""Maximum characters of a quoted answer of the bot; enough to identify it, since the model has it already."""
UNNAMED_AUTHOR = "somebody"
"""Name of an author whose name has no visible character."""

_SPEAKER = re.compile(r"^(?=[^\s:>][^:\n]{0,63}: )", re.MULTILINE)


def build_prompt(messages: Sequence[IncomingMessage]) -> str:
    """Return the messages of one turn as one text for the model.

    Ordinary messages in a private chat stay as typed. Quotes, forwards and authors in groups get labels;
    files are left out, and other content such as a place or poll is described.
    """
    runs = (list(run) for _, run in groupby(messages, key=_get_run_key))
    return "\n\n".join(text for run in runs if (text := _render_run(run)))


def list_own_texts(messages: Sequence[IncomingMessage], prompt: str) -> tuple[str | None, ...]:
    """Return the own text of each message; empty if the prompt is exactly the text of the only message."""
    if len(messages) == 1 and messages[0].text == prompt:
        return ()
    return tuple(one.text for one in messages)


def reword_prompt(prompt: str, message: IncomingMessage, *, former: str | None) -> str:
    """Return the prompt of a turn after an edit of `message`, whose own text was `former`.

    Quotes, other messages and transcripts stay. `former` None means that the prompt is this message alone.
    """
    whole = build_prompt((message,))
    recorded = message.media is not None and message.media.kind in ("voice", "audio", "video_note")
    if former is None or not prompt.strip() or (recorded and not former.strip()):
        return whole
    old, new = _render_own_text(message, former), _render_own_text(message, message.text)
    before, found, after = prompt.rpartition(old) if old.strip() else (prompt, "", "")
    if found:
        return f"{before}{new}{after}".strip()
    return f"{prompt}\n{new}".strip()


def _render_own_text(message: IncomingMessage, text: str) -> str:
    """Return a message's own text as it appears in a prompt.

    In a group, lines that look like a speaker are indented.
    """
    group = not message.chat.is_private
    own = strip_marks(text, foreign=group)
    return _indent_speakers(own) if group else own


def join_texts(texts: Sequence[str]) -> str:
    """Join texts by line breaks; parts of a long text that an app has cut are joined without one."""
    whole = ""
    before = ""
    for text in texts:
        if not text:
            continue
        whole += text if not whole or _is_cut_inside(before, text) else f"\n{text}"
        before = text
    return whole


def sanitize_name(name: str) -> str:
    """Return a name on one line without characters that would begin or end a label."""
    return untrusted_text.label(name, nameless=UNNAMED_AUTHOR)


def _get_run_key(message: IncomingMessage) -> tuple[int, str | None, object]:
    """Return a key that is equal for messages that make one block: same person, and same source if forwarded.

    A message with a quote has a unique key.
    """
    forwarded = message.forward_origin.name if message.forward_origin else None
    return message.sender.user_id, forwarded, message if message.quoted else None


def _render_run(run: Sequence[IncomingMessage]) -> str:
    """Return the text of one block of messages, with quote, source and author as needed."""
    first = run[0]
    group = not first.chat.is_private
    content = join_texts([message.text for message in run])
    notes = "\n".join(note for message in run if (note := _describe_media(message.media)))
    if first.forward_origin is not None:
        source = "you" if first.forward_origin.from_this_bot else sanitize_name(first.forward_origin.name)
        body = _label_and_quote(f"Forwarded from {source}", content or notes, limit=0)
    else:
        own = strip_marks(content, foreign=group)
        body = "\n".join(text for text in (_indent_speakers(own) if group else own, notes) if text)
    quote = _render_quote(first.quoted) if first.quoted else ""
    said = f"{sanitize_name(first.sender.name)}: {body}" if group and body else body
    return "\n\n".join(text for text in (quote, said) if text)


def _render_quote(quoted: QuotedMessage) -> str:
    if quoted.by_bot:
        whose = "your message"
    elif quoted.own:
        whose = "their own message"
    else:
        whose = f"{sanitize_name(quoted.author)}"
    label = f"{'Quoting' if quoted.chosen or quoted.elsewhere else 'In reply to'} {whose}"
    if quoted.elsewhere:
        label += ", from another chat"
    note = _describe_attachment(quoted)
    content = "\n".join(text for text in (note, quoted.text) if text)
    limit = OWN_ANSWER_CHARS if quoted.by_bot else QUOTE_CHARS + len(note)
    part = _label_and_quote(label, content, limit=limit)
    if not quoted.chosen or quoted.by_bot or quoted.own or quoted.whole in ("", quoted.text):
        return part
    return f"{_label_and_quote(f'In reply to {whose}', quoted.whole, limit=QUOTE_CHARS)}\n\n{part}"


def _describe_attachment(quoted: QuotedMessage) -> str:
    """Return a description of the quoted file or content; empty if a text without file was quoted."""
    media = quoted.attachment
    if media is None:
        return f"({_add_article(quoted.media)})" if quoted.media and not quoted.text else ""
    if media.note:
        return _describe_media(media)
    return f"({_add_article(media.kind)}{f': {sanitize_name(media.name)}' if media.name else ''})"


def _label_and_quote(label: str, content: str, *, limit: int) -> str:
    """Return a label in brackets, and below it each line of `content` after a quote sign.

    `limit` is the maximum of characters, 0 for no limit.
    """
    shown = strip_marks(untrusted_text.strip_invisible(_shorten(content, limit)), foreign=True)
    lines = "\n".join(f"> {line}" for line in shown.splitlines())
    return f"[{label}]\n{lines}" if lines else f"[{label}]"


def _shorten(content: str, limit: int) -> str:
    """Return a text cut to `limit` characters with a note in the cut, 0 for no limit."""
    if not limit or len(content) <= limit:
        return content
    tail = limit // 4
    left_out = len(content) - limit
    return f"{content[: limit - tail]} [… {left_out:,} characters left out …] {content[-tail:]}"


def _indent_speakers(content: str) -> str:
    """Indent the lines after the first that look as if another person in the group wrote them."""
    first, newline, rest = content.partition("\n")
    return f"{first}\n{_SPEAKER.sub('  ', rest)}" if newline else first


def _describe_media(media: Media | None) -> str:
    if media is None or not media.note or media.kind == "sticker":
        return f"(a sticker: {media.note})" if media is not None and media.note else ""
    return f"({_add_article(media.kind)}: {strip_marks(media.note, foreign=True)})"


def _add_article(kind: str) -> str:
    phrases = {"dice": "a throw of dice", "other": "something else", "video_note": "a video"}
    return phrases.get(kind, f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}")


def _is_cut_inside(before: str, after: str) -> bool:
    """Return whether an app has cut a text between these two messages.

    Then the first has the maximum length, or one unit less if a character of two units did not fit.
    """
    length = utf16_units(before)
    return length == MESSAGE_UNITS or (length == MESSAGE_UNITS - 1 and ord(after[0]) > 0xFFFF)
