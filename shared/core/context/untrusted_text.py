"""Foreign text as data: fenced, and without anything that looks like a mark of the program.

Everything that a person, a file, a page, a tool or an older text of the program brings into a request goes
through `defuse`; separate passages go through `fence_text`. The log keeps the original: only the request
changes, always in the same way. docs/operations.md says why the tags have no secret code.
"""

from __future__ import annotations

import re

from shared.core.context.lookalikes import places_of_shape, plain_shape
from shared.core.context.prompts import FENCE_TAG, OUR_TAGS

LABEL_CHARS = 64
"""Most characters of a name in a mark."""
FENCE = f"<{FENCE_TAG} kind="
"""Beginning of the opening tag around a passage from outside."""

_BLANK = r"[\s\u00ad\u200b-\u200f\u2060\ufeff]"
_HIDDEN, _GAP = f"{_BLANK}*+", f"{_BLANK}++"
"""Patterns of optional and required blanks; possessive, so that matching takes linear time."""
_BRACKETS = "[［【〔⟦"
_BRACKET = rf"[{re.escape(_BRACKETS)}]"
_OPENING = r"(?:<|[＜﹤]|&lt;|&#0{0,6}60;|&#x0{0,6}3c;)"
_OTHERS_TAGS = (
    "system", "system[-_]reminder", "system_prompt", "human", "assistant", "function_calls?",
    "function_results?", "tool_use", "tool_calls?", "tool_results?", "antml:\\w+",
    r"invoke(?=\s+name\s*=)",
)  # fmt: skip
_SMUGGLED = re.compile(r"(?<![\U0001f3f4\U000e0020-\U000e007e])[\U000e0001-\U000e007f]+")
"""Invisible letters that models read; after a black flag they form the flag of a region."""
_UNSEEN = re.compile(r"[\U000e0001-\U000e007f]")
"""Test for any invisible letter, made first because looking behind every letter takes long."""


def _opening_pattern(names: tuple[str, ...], *, fence: str = "") -> re.Pattern[str]:
    """Return a pattern of an opening sign before one of these tag names, also with invisible blanks or as an
    entity.

    `fence` is an additional alternative, with which every word that begins like our fence matches.
    """
    whole = rf"(?:{'|'.join(names)})(?![\w-])"
    return re.compile(rf"{_OPENING}(?={_HIDDEN}/?+{_HIDDEN}(?:{fence}{whole}))", re.IGNORECASE)


_BUT_FENCE = (*(tag for tag in OUR_TAGS if tag != FENCE_TAG), *_OTHERS_TAGS)
_MARK = _opening_pattern(_BUT_FENCE, fence=f"{FENCE_TAG}|")
_MARK_BUT_FENCE = _opening_pattern(_BUT_FENCE)
_CONTROL = re.compile(r"<(?=\|[\w-]{1,40}\|>|<\s*+/?+\s*+SYS\s*+>>)", re.IGNORECASE)
_INST = re.compile(r"\[(?=/?INST\])")
_SPEAKERS = r"(?:system|evertalk)"
_FOREIGN_SPEAKERS = r"(?:system|evertalk|assistant|tool(?! result cleared\]))"
_PROGRAM = (
    rf"(?:message|note|notice|instruction)s?{_GAP}(?:of|from|by|for)"
    rf"{_GAP}the{_GAP}(?:program|system|developer|operator)\b"
)
_NOTE = re.compile(rf"{_BRACKET}(?={_HIDDEN}(?:{_SPEAKERS}(?:\s++\w|\s*+:)|{_PROGRAM}))", re.IGNORECASE)
_FOREIGN_NOTE = re.compile(
    rf"{_BRACKET}(?={_HIDDEN}(?:{_FOREIGN_SPEAKERS}(?:\s++\w|\s*+[:\]])|{_PROGRAM}))",
    re.IGNORECASE,
)
_ROLE = re.compile(
    r"^([ \t>#*_•-]*(?:Human|Assistant|System|HUMAN|ASSISTANT|SYSTEM)[*_]*[ \t]*)[:：](?=[*_]*(?:\s|$))",
    re.MULTILINE,
)
_ROLES = ("Human", "Assistant", "System", "HUMAN", "ASSISTANT", "SYSTEM")
_NOT_IN_LABELS = re.compile(r"(?:[\s\[\]<>:#\"＜＞﹤﹥]|&[lg]t;)+", re.IGNORECASE)
_INVISIBLE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff\U000e0001-\U000e007f]"
)


def defuse(text: str, *, foreign: bool = True, keep_fences: bool = False) -> str:
    """Return the text with imitated marks, roles and notes of the program replaced by similar signs.

    `foreign` False is for a person's own text, which is changed as little as possible. `keep_fences` keeps
    the fences that `fence_text` made. Repeating the call changes nothing.
    """
    if not text.isascii() and _UNSEEN.search(text):
        text = _SMUGGLED.sub("", text)
    if "<" in text or "&" in text or "＜" in text or "﹤" in text:
        text = (_MARK_BUT_FENCE if keep_fences else _MARK).sub("‹", text)
        text = _CONTROL.sub("‹", text)
    if "[" in text or (not text.isascii() and any(sign in text for sign in _BRACKETS)):
        text = (_FOREIGN_NOTE if foreign else _NOTE).sub("(", _INST.sub("(", text))
    for role in _ROLES:
        if role in text:
            text = _ROLE.sub("\\1\u2236", text)
            break
    return text if text.isascii() else _defuse_lookalikes(text, foreign=foreign, keep_fences=keep_fences)


def _defuse_lookalikes(text: str, *, foreign: bool, keep_fences: bool) -> str:
    """Return the text with marks replaced that are disguised by invisible or look-alike characters.

    The patterns are those for plain text; nothing else changes.
    """
    shape = plain_shape(text)
    found: dict[int, tuple[int, str]] = {}
    for pattern, sign in (
        (_MARK_BUT_FENCE if keep_fences else _MARK, "‹"),
        (_CONTROL, "‹"),
        (_INST, "("),
        (_FOREIGN_NOTE if foreign else _NOTE, "("),
    ):
        found |= {match.start(): (match.end(), sign) for match in pattern.finditer(shape)}
    found |= {match.end(1): (match.end(1) + 1, "\u2236") for match in _ROLE.finditer(shape)}
    if keep_fences:
        fences = (match for match in _MARK.finditer(shape) if match.start() not in found)
        found |= {match.start(): (match.end(), "‹") for match in fences}
    if not found:
        return text
    places = places_of_shape(text)
    pieces, at = [], 0
    for start, (end, sign) in sorted(found.items()):
        begin, behind = places[start], places[end - 1] + 1
        if keep_fences and text.startswith((FENCE, f"</{FENCE_TAG}>"), begin):
            continue
        pieces += [text[at:begin], sign]
        at = behind
    return "".join([*pieces, text[at:]])


def fence_text(kind: str, text: str, *, source: str = "") -> str:
    """Return foreign text, defused, inside tags that mark it as data of this `kind` from `source`.

    `kind` is a fixed word, such as `knowledge` or `page`; an empty `source` is left out. Use it for text that
    is added while a request is built. Stored text, such as a tool's result, is a block and is defused when it
    is sent.
    """
    named = f' from="{label(source)}"' if source else ""
    return f'{FENCE}"{kind}"{named}>\n{defuse(text)}\n</{FENCE_TAG}>'


def label(name: str, *, nameless: str = "", chars: int = LABEL_CHARS) -> str:
    """Return a name on one line, without brackets and other characters that marks use, cut to `chars`
    characters.

    Returns `nameless` if nothing is left.
    """
    plain = _NOT_IN_LABELS.sub(" ", strip_invisible(name)).strip()
    return plain[:chars].strip() or nameless


def strip_invisible(text: str) -> str:
    """Return the text without control characters, except tab and line feed, and without invisible
    characters.
    """
    return _INVISIBLE.sub("", text)


_OUR_FRAMES = r"in reply to\b|quoting\b|forwarded from\b|file\s++\S|end of file\s*+\]"
_OWN_LINE = re.compile(rf"^([^\S\n]*+)\[(?={_OUR_FRAMES})", re.IGNORECASE | re.MULTILINE)
_RECORD = re.compile(r"\[(?=#\d)")


def strip_marks(text: str, *, foreign: bool) -> str:
    """Return the text with imitated marks replaced, also those of files, quotes and records (`[#12]`).

    `foreign` False changes as little as possible, as in `defuse`.
    """
    text = _RECORD.sub("(", _OWN_LINE.sub(r"\1(", text))
    return defuse(text, foreign=foreign)


OF_REPLIED = ", of the message replied to"
"""Suffix of a file's name if the file belongs to the message that the person replied to."""


def file_text(name: str, text: str, *, of: str = "") -> str:
    """Return a file's text between a line with its name and an end line, with imitated marks replaced.

    `of` is text after the name, such as `OF_REPLIED`.
    """
    return f"[File {label(name, nameless='file')}{of}]\n{strip_marks(text, foreign=True)}\n[End of file]"


def file_name_text(name: str, *, of: str = "") -> str:
    """Return the text block that names the file of the picture after it.

    `of` is text after the name, such as `OF_REPLIED`.
    """
    return f"[File {label(name, nameless='file')}{of}]\nThe picture that follows.\n[End of file]"


_ONCE_MORE = "/retry tries once more"
_WHY_NOT_READ = {
    "file_too_large": "it is larger than the {megabytes:g} MB that can be read",
    "file_unavailable": f"Telegram did not hand it over; {_ONCE_MORE}",
    "file_unknown_kind": "its kind cannot be read here",
    "file_unreadable": "it is damaged or not what its name says",
    "file_empty": "it is empty",
    "file_locked": "it is locked by a password",
    "cannot_hear": "there is no service here that listens to recordings",
    "not_heard": f"the service that listens to recordings is away; {_ONCE_MORE}",
    "cannot_watch": "videos cannot be watched here",
    "cannot_see_sticker": "stickers cannot be seen here",
    "recording_too_long": "it is too long to be listened to",
    "recording_empty": "nobody speaks in it",
    "too_many_files": "a message had more files than are read at once",
}


_UNREAD = ", not read]\n"


def is_unread_file(text: str) -> bool:
    """Return whether a text is a notice that `unread_file_text` made."""
    return text.startswith("[File ") and _UNREAD in text


def may_be_read_later(text: str) -> bool:
    """Return whether a text is a notice of `unread_file_text` for a file that a retry may read."""
    return is_unread_file(text) and _ONCE_MORE in text


def unread_file_text(name: str, kind: str, reason: str, *, megabytes: float = 0, of: str = "") -> str:
    """Return the notice, in English for the model, that a file of the person could not be read.

    `kind` is a word such as `file`, used for a file without name; `reason` is a key such as `file_empty`, and
    an unknown one gives a general sentence. `megabytes` is the limit for `file_too_large`.
    """
    why = _WHY_NOT_READ.get(reason, "it could not be read").format(megabytes=megabytes)
    named = label(name, nameless=kind)
    what = f"{kind} " if named != kind else ""
    return f"[File {what}{named}{of}{_UNREAD}Its content is missing: {why}.\n[End of file]"
