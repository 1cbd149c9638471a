"""Export of a person's data as Markdown or JSON, text by text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from shared.core.context.build_context import plain_text
from shared.core.session.ledger import ledger_from_json
from shared.core.session.summary import five_fields, translate_headings
from shared.core.session.turns import iso
from shared.core.values.messages import blocks_from_json
from shared.locales import Catalogue

ExportFormat = Literal["md", "json"]
SCHEMA = "evertalk-export"
"""Name of the format of exports."""
SCHEMA_VERSION = 1
"""Version of the format of exports."""
MIME: Mapping[ExportFormat, str] = {
    "md": "text/markdown; charset=utf-8",
    "json": "application/json; charset=utf-8",
}
"""Content type by format."""
EXPORTS = tuple(words.partition(";")[0] for words in MIME.values())
"""Media types of an export, Markdown first."""
_FIELDS = ("summary_text", "key_facts", "decisions", "open_questions", "action_items")
_SAID = ("person", "assistant", "operator")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedSession:
    """Conversation of an export without its messages, which are loaded in pages.

    `pins` are the `seq` of pinned messages; `summaries` come from `summary_of`.
    """

    id: int
    public_id: str
    created_at: datetime
    last_seq: int
    facts: Mapping[str, Any]
    """Facts such as agent, goal, mode, addresses and usage."""
    summaries: Sequence[Mapping[str, Any]]
    pins: Sequence[int]
    attachments: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportHead:
    """Data of a person's export except the messages: person, conversations, notes, and further rows."""

    person: Mapping[str, Any]
    sessions: Sequence[ExportedSession]
    notes: Sequence[Mapping[str, Any]]
    more: Mapping[str, Sequence[Mapping[str, Any]]]
    """Further rows of the person by table, for tables of this installation."""


def message_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored message, given as its row, in the form of an export.

    `text` has pictures and tool results as text; `blocks` are added if the message has any of these or tool
    calls.
    """
    blocks = blocks_from_json(row["blocks"])
    message: dict[str, Any] = {
        "seq": row["seq"],
        "turn": row["turn_no"],
        "author": row["author"],
        "at": iso(row["at"]),
        "text": plain_text(blocks),
    }
    if row["replaces_seq"] is not None:
        message["replaces"] = row["replaces_seq"]
    if row["replaced_by"] is not None:
        message["replaced_by"] = row["replaced_by"]
    if any(block["type"] in ("tool_use", "tool_result", "image") for block in row["blocks"]):
        message["blocks"] = [block for block in row["blocks"] if block["type"] != "thinking"]
    return message


def summary_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored summary, given as its row, in the form of an export."""
    fields = five_fields(ledger_from_json(row["ledger"]))
    return {
        "kind": row["kind"],
        "turns": [row["from_turn"], row["through_turn"]],
        "messages": [row["from_seq"], row["through_seq"]],
        "at": iso(row["created_at"]),
        "in_use": row["active"],
        "text": row["summary_text"],
        **{name: fields[name] for name in _FIELDS},
    }


def dump_json(value: Any) -> str:
    """Return a value as JSON on one line; times as ISO 8601, bytes in hex, other types as their text."""
    return json.dumps(value, ensure_ascii=False, default=_encode_value)


def _dump_inert(value: Any) -> str:
    """Return a value as JSON for a line of Markdown, with marks of links, pictures and HTML spelled as
    escapes.
    """
    calm = dump_json(value).replace("<", "\\u003c").replace("![", "!\\u005b")
    return calm.replace("](", "\\u005d(")


def fence_block(text: str) -> str:
    """Return a text literally in a fenced block of Markdown, so that a viewer neither renders nor fetches
    anything.
    """
    fence = "`" * max(3, 1 + _longest_run(text))
    return f"{fence}text\n{text}\n{fence}"


def inline_code(text: str) -> str:
    """Return a text on one line as inline code, so that a viewer renders nothing in it.

    An empty text gives an empty one.
    """
    words, fence = " ".join(text.split()), "`" * (1 + _longest_run(text))
    return f"{fence} {words} {fence}" if words else ""


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)


def _encode_value(value: Any) -> Any:
    if isinstance(value, datetime):
        return iso(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    return str(value)


def json_start(head: ExportHead, *, at: datetime) -> str:
    """Return the beginning of a JSON export made at the time `at`, up to the list of conversations."""
    top = {
        "schema": SCHEMA,
        "version": SCHEMA_VERSION,
        "exported_at": iso(at),
        "person": head.person,
        "notes": list(head.notes),
        **{name: list(rows) for name, rows in head.more.items()},
    }
    return dump_json(top)[:-1] + ', "conversations": ['


def json_session(session: ExportedSession, *, first: bool) -> str:
    """Return the beginning of a conversation in a JSON export, up to the list of messages.

    All but the first conversation begin with a comma; `first` says which this is.
    """
    values = {
        "id": session.public_id,
        "created_at": session.created_at,
        **session.facts,
        "summaries": list(session.summaries),
        "pins": list(session.pins),
        "attachments": list(session.attachments),
    }
    return ("" if first else ", ") + dump_json(values)[:-1] + ', "messages": ['


JSON_SESSION_END = "]}"
"""End of a conversation in a JSON export."""
JSON_END = "]}\n"
"""End of a JSON export."""


def json_messages(messages: Sequence[Mapping[str, Any]], *, first: bool) -> str:
    """Return messages, each from `message_of`, as a page of a JSON export; empty without messages.

    All but the `first` page of a conversation begin with a comma.
    """
    if not messages:
        return ""
    return ("" if first else ",\n") + ",\n".join(map(dump_json, messages))


def markdown_start(head: ExportHead, texts: Catalogue, *, at: datetime, verbatim: bool = False) -> str:
    """Return the beginning of a Markdown export: front matter (JSON, which is YAML), notes and further rows.

    `texts` has the headings in the reader's language. `verbatim` True is for a reader other than the writer:
    all texts are shown literally, so that nothing in them is rendered.
    """
    newest = _newest(head)
    front: dict[str, Any] = {
        "schema": SCHEMA,
        "version": SCHEMA_VERSION,
        "exported": iso(at),
        "name": head.person.get("display_name", ""),
        "conversations": [session.public_id for session in head.sessions],
        **{name: newest[name] for name in _FIELDS if newest},
    }
    lines = ["---", *(f"{name}: {_dump_inert(value)}" for name, value in front.items()), "---", ""]
    if head.notes:
        lines += [
            f"## {texts.say('export_remembered')}",
            "",
            *(_note(note, verbatim) for note in head.notes),
            "",
        ]
    for name, rows in head.more.items():
        if rows:
            lines += [f"## {name.capitalize()}", "", *(f"- {_dump_inert(row)}" for row in rows), ""]
    return "\n".join(lines) + "\n"


def _newest(head: ExportHead) -> Mapping[str, Any] | None:
    found = [summary for session in head.sessions for summary in session.summaries if summary["in_use"]]
    return max(found, key=lambda summary: str(summary["at"]), default=None)


def _note(note: Mapping[str, Any], verbatim: bool) -> str:
    where = f", from turn {note['from_turn']}" if note.get("from_turn") else ""
    text = inline_code(note["text"]) if verbatim else note["text"]
    return f"- {text} ({note['kind']}, said by: {note['authority']}{where})"


def markdown_session(session: ExportedSession, texts: Catalogue, *, verbatim: bool = False) -> str:
    """Return the beginning of a conversation in a Markdown export: facts, pins, files, and the summary in
    use.

    `verbatim` as in `markdown_start`.
    """
    title = texts.say("export_conversation", id=session.public_id)
    begun = texts.say("export_begun", at=iso(session.created_at))
    lines = [f"# {title}", "", begun, ""]
    for name, value in session.facts.items():
        if value:
            own = inline_code(value) if verbatim and isinstance(value, str) else value
            lines.append(f"- {name}: {own if isinstance(own, str) else _dump_inert(own)}")
    if session.pins:
        lines.append(f"- pinned messages: {', '.join(map(str, session.pins))}")
    lines += [*(f"- file: {_dump_inert(file)}" for file in session.attachments), ""]
    for summary in session.summaries:
        if summary["in_use"]:
            first, last = summary["turns"]
            text = translate_headings(str(summary["text"]), texts)
            title = texts.say("export_summary", first=first, last=last)
            lines += [f"## {title}", "", fence_block(text) if verbatim else text, ""]
    return "\n".join([*lines, f"## {texts.say('export_messages')}", "", ""])


def markdown_messages(messages: Sequence[Mapping[str, Any]], *, verbatim: bool = False) -> str:
    """Return messages, each from `message_of`, as a page of a Markdown export.

    Only those of persons, the assistant and operators with a text are shown. `verbatim` as in
    `markdown_start`.
    """
    return "".join(_render_spoken(messages, verbatim))


def _render_spoken(messages: Sequence[Mapping[str, Any]], verbatim: bool) -> Iterator[str]:
    for message in messages:
        if message["author"] in _SAID and message["text"]:
            at = str(message["at"])[:16].replace("T", " ")
            edited = f" · in place of message {message['replaces']}" if "replaces" in message else ""
            edited += f" · replaced by message {message['replaced_by']}" if "replaced_by" in message else ""
            text = fence_block(message["text"]) if verbatim else message["text"]
            yield f"**{message['author']}** · {at}{edited}\n\n{text}\n\n"
