"""What a model reads of messages: who speaks, what they quote and forward, and nobody speaks in our name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

from bot.telegram.inbound.updates import IncomingMessage, Media, QuotedMessage
from bot.telegram.markup import MESSAGE_UNITS, count_units
from shared.core.context import untrusted_text
from shared.core.context.file_texts import defused

QUOTE_CHARS = 2_000
OWN_ANSWER_CHARS = 400
"""What the bot itself said stands in the conversation anyway; so much of it shows which answer is meant."""
UNNAMED_AUTHOR = "somebody"

_SPEAKER = re.compile(r"^(?=[^\s:>][^:\n]{0,63}: )", re.MULTILINE)


def build_prompt(messages: Sequence[IncomingMessage]) -> str:
    """The messages of one turn as one text; without quotes, forwards and groups it is what was typed.

    Pictures and files are not in it, but what has no file (a place, a contact, a poll) is told in words.
    """
    runs = (list(run) for _, run in groupby(messages, key=_voice))
    return "\n\n".join(text for run in runs if (text := _run_text(run)))


def join_texts(texts: Sequence[str]) -> str:
    """A long text that an app has cut into messages, whole again."""
    whole = ""
    before = ""
    for text in texts:
        if not text:
            continue
        whole += text if not whole or _cut_inside(before, text) else f"\n{text}"
        before = text
    return whole


def sanitize_name(name: str) -> str:
    """On one line and without signs that would end or open a mark."""
    return untrusted_text.label(name, nameless=UNNAMED_AUTHOR)


def _voice(message: IncomingMessage) -> tuple[int, str | None, object]:
    """Messages that read as one: the same person, speaking or forwarding from the same source."""
    forwarded = message.forward_origin.name if message.forward_origin else None
    return message.sender.user_id, forwarded, message if message.quoted else None


def _run_text(run: Sequence[IncomingMessage]) -> str:
    first = run[0]
    group = not first.chat.is_private
    words = join_texts([message.text for message in run])
    notes = "\n".join(note for message in run if (note := _media_note(message.media)))
    if first.forward_origin is not None:
        source = "you" if first.forward_origin.from_this_bot else sanitize_name(first.forward_origin.name)
        body = _marked(f"Forwarded from {source}", words or notes, limit=0)
    else:
        own = defused(words, foreign=group)
        body = "\n".join(text for text in (_continued(own) if group else own, notes) if text)
    quote = _quote(first.quoted) if first.quoted else ""
    said = f"{sanitize_name(first.sender.name)}: {body}" if group and body else body
    return "\n\n".join(text for text in (quote, said) if text)


def _quote(quoted: QuotedMessage) -> str:
    if quoted.by_bot:
        whose = "your message"
    elif quoted.own:
        whose = "their own message"
    else:
        whose = f"{sanitize_name(quoted.author)}"
    label = f"{'Quoting' if quoted.chosen or quoted.elsewhere else 'In reply to'} {whose}"
    if quoted.elsewhere:
        label += ", from another chat"
    words = quoted.text or (f"({_a(quoted.media)})" if quoted.media else "")
    return _marked(label, words, limit=OWN_ANSWER_CHARS if quoted.by_bot else QUOTE_CHARS)


def _marked(label: str, words: str, *, limit: int) -> str:
    """A label of ours, and each line of the foreign words behind a sign."""
    shown = defused(untrusted_text.without_invisible(_shortened(words, limit)), foreign=True)
    lines = "\n".join(f"> {line}" for line in shown.splitlines())
    return f"[{label}]\n{lines}" if lines else f"[{label}]"


def _shortened(words: str, limit: int) -> str:
    if not limit or len(words) <= limit:
        return words
    tail = limit // 4
    left_out = len(words) - limit
    return f"{words[: limit - tail]} [… {left_out:,} characters left out …] {words[-tail:]}"


def _continued(words: str) -> str:
    """In a group, no further line can look as if another person spoke."""
    first, newline, rest = words.partition("\n")
    return f"{first}\n{_SPEAKER.sub('  ', rest)}" if newline else first


def _media_note(media: Media | None) -> str:
    if media is None or not media.note or media.kind == "sticker":
        return f"(a sticker: {media.note})" if media is not None and media.note else ""
    return f"({_a(media.kind)}: {defused(media.note, foreign=True)})"


def _a(kind: str) -> str:
    words = {"dice": "a throw of dice", "other": "something else", "video_note": "a video"}
    return words.get(kind, f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}")


def _cut_inside(before: str, after: str) -> bool:
    """Cut at the limit, in the middle of a text; one unit below it where a wide sign did not fit."""
    length = count_units(before)
    return length == MESSAGE_UNITS or (length == MESSAGE_UNITS - 1 and ord(after[0]) > 0xFFFF)
