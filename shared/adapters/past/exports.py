"""Reading of exports of Telegram, ChatGPT, Claude and WhatsApp."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Any

from shared.adapters.past.json_stream import JsonStream
from shared.adapters.past.whatsapp import read_whatsapp
from shared.core.memory.past import PastMessage, PastSource
from shared.core.values.errors import BadInput

MOST_BYTES = 4 * 2**30
"""Maximum bytes of an unpacked export (4 GiB)."""
MOST_STEPS = 20_000
"""Maximum messages of one ChatGPT conversation that are followed from its end to its beginning."""
_EARLIEST = datetime(1990, 1, 1, tzinfo=UTC)


def read_past(
    source: PastSource, path: Path, *, zone: tzinfo, now: datetime, me: str = ""
) -> Iterator[PastMessage]:
    """Yield the messages of an export in order.

    Leaves out empty messages, and those dated before 1990 or after `now`. `me` is the person's name in
    Telegram and WhatsApp; "" means the export's owner, where it names one. Raises BadInput for a file of
    another form, and OSError.
    """
    _refuse_other_files(path)
    messages = read_whatsapp(path, zone=zone, me=me) if source == "whatsapp" else _read_json(source, path, me)
    for message in messages:
        if message.text.strip() and _EARLIEST <= message.at <= now:
            yield message


def _read_json(source: PastSource, path: Path, me: str) -> Iterator[PastMessage]:
    found = False
    with path.open(encoding="utf-8-sig", newline="") as file:
        try:
            for message in _JSON[source](JsonStream(file), me):
                found = True
                yield message
        except UnicodeDecodeError as error:
            raise BadInput("the file is not in UTF-8", advice="Export the file again, as JSON.") from error
    if not found:
        raise BadInput(f"there are no messages of {source} in the file", advice=_OTHER_FORM)


_OTHER_FORM = "Choose the program that made the file, and export it as JSON."


def _refuse_other_files(path: Path) -> None:
    if not path.is_file():
        raise BadInput("there is no such file", advice="Check the path of the file.")
    size = path.stat().st_size
    if size > MOST_BYTES:
        raise BadInput("the file is larger than 4 GiB", advice="Export a part of the conversation.")
    with path.open("rb") as file:
        head = file.read(4)
    if head[:2] in (b"PK", b"\x1f\x8b") or head[:3] == b"BZh":
        raise BadInput("the file is an archive", advice="Unpack the archive, and name the file in it.")
    if not head:
        raise BadInput("the file is empty", advice=_OTHER_FORM)


def _telegram(stream: JsonStream, me: str) -> Iterator[PastMessage]:
    """Yield the messages of a Telegram export, which holds one chat or all chats of an account."""
    about: dict[str, Any] = {}
    for key in stream.fields():
        if key == "messages" and stream.peek() == "[":
            yield from _telegram_messages(stream, about, me)
        elif key == "chats" and stream.peek() == "{":
            for inner in stream.fields():
                if inner == "list" and stream.peek() == "[":
                    for _ in stream.items():
                        yield from _telegram_chat(stream, about.get("me", ""), me)
                else:
                    stream.value()
        else:
            value = stream.value()
            if key == "personal_information" and isinstance(value, dict):
                about["me"] = f"user{value.get('user_id')}"
            elif key in ("name", "type", "id"):
                about[key] = value


def _telegram_chat(stream: JsonStream, own_id: str, me: str) -> Iterator[PastMessage]:
    about: dict[str, Any] = {"me": own_id}
    if stream.peek() != "{":
        stream.value()
        return
    for key in stream.fields():
        if key == "messages" and stream.peek() == "[":
            yield from _telegram_messages(stream, about, me)
        else:
            about[key] = stream.value()


def _telegram_messages(stream: JsonStream, about: Mapping[str, Any], me: str) -> Iterator[PastMessage]:
    other = f"user{about.get('id')}" if about.get("type") in ("personal_chat", "bot_chat") else ""
    title = _name(about.get("name"))
    for _ in stream.items():
        row = stream.value()
        if not isinstance(row, dict) or row.get("type") != "message":
            continue
        at = _time(row.get("date_unixtime")) or _time(row.get("date"))
        if at is None:
            continue
        sender, name = row.get("from_id"), _name(row.get("from"))
        if me:
            is_own = name == me
        else:
            is_own = sender == about["me"] if about.get("me") else bool(other) and sender != other
        is_assistant = not is_own and about.get("type") == "bot_chat"
        yield PastMessage(
            text=_text(row.get("text")), at=at, is_assistant=is_assistant, thread=title,
            speaker="" if is_own or is_assistant else name or "?",
        )  # fmt: skip


def _chatgpt(stream: JsonStream, me: str) -> Iterator[PastMessage]:
    for _ in stream.items():
        row = stream.value()
        mapping = row.get("mapping") if isinstance(row, dict) else None
        if not isinstance(mapping, dict):
            continue
        began, title = _time(row.get("create_time")), _name(row.get("title"))
        for message in _branch(mapping, row.get("current_node")):
            author, content, meta = (_object(message, name) for name in ("author", "content", "metadata"))
            at = _time(message.get("create_time")) or began
            hidden = meta.get("is_visually_hidden_from_conversation") is True
            if author.get("role") not in ("user", "assistant") or at is None or hidden:
                continue
            if content.get("content_type") not in ("text", "multimodal_text"):
                continue
            yield PastMessage(
                text=_text(content.get("parts"), between="\n"), at=at, thread=title,
                is_assistant=author["role"] == "assistant",
            )  # fmt: skip


def _branch(mapping: Mapping[str, Any], newest: Any) -> list[Mapping[str, Any]]:
    """Return the messages on the path from the root of a ChatGPT conversation to the node `newest`.

    Each node is visited once, and at most `MOST_STEPS` of them.
    """
    path: list[Mapping[str, Any]] = []
    seen: set[str] = set()
    while isinstance(newest, str) and newest in mapping and newest not in seen and len(seen) < MOST_STEPS:
        seen.add(newest)
        node = mapping[newest]
        if not isinstance(node, dict):
            break
        if isinstance(node.get("message"), dict):
            path.append(node["message"])
        newest = node.get("parent")
    return path[::-1]


def _claude(stream: JsonStream, me: str) -> Iterator[PastMessage]:
    for _ in stream.items():
        row = stream.value()
        said = row.get("chat_messages") if isinstance(row, dict) else None
        if not isinstance(said, list):
            continue
        began, title = _time(row.get("created_at")), _name(row.get("name"))
        for message in said:
            if not isinstance(message, dict) or message.get("sender") not in ("human", "assistant"):
                continue
            if (at := _time(message.get("created_at")) or began) is None:
                continue
            blocks = message.get("content")
            shown = [one for one in blocks if _is_text(one)] if isinstance(blocks, list) else []
            text = _text(shown, between="\n") or _text(message.get("text"))
            yield PastMessage(
                text=text, at=at, is_assistant=message["sender"] == "assistant", thread=title
            )  # fmt: skip


_JSON = {"telegram": _telegram, "chatgpt": _chatgpt, "claude": _claude}


def _is_text(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "text"


def _object(row: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = row.get(name)
    return value if isinstance(value, dict) else {}


def _text(value: Any, *, between: str = "") -> str:
    """Return a string, or a list of pieces joined with `between`; "" for other values."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        return ""
    pieces = (piece.get("text") if isinstance(piece, dict) else piece for piece in value)
    return between.join(piece for piece in pieces if isinstance(piece, str) and piece)


def _name(value: Any) -> str:
    return " ".join(value.split())[:100] if isinstance(value, str) else ""


def _time(value: Any) -> datetime | None:
    """Return the UTC time of Unix seconds or an ISO 8601 text; None for other values.

    A text without a zone is in UTC.
    """
    try:
        if isinstance(value, str) and not value.isdecimal():
            at = datetime.fromisoformat(value)
            at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
        elif isinstance(value, int | float | str) and not isinstance(value, bool):
            at = datetime.fromtimestamp(float(value), UTC)
        else:
            return None
    except (ValueError, OverflowError, OSError):
        return None
    return at
