"""Frames of protocol v1: those of clients are strictly parsed into values, those of the server are built
here.

`cid` is a client's id of its frame, `mid` an id of a message (`m12`) or of a turn (`t7`), `event_seq` the
number of an event in the conversation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Never

from shared.core.commands.public_messages import advice_for_public
from shared.core.session.turns import Accepted, ContextMeasured, Organizing, RunEnded, shorten_message
from shared.core.values.errors import BadInput, EvertalkError, UnreadableMessage

VERSION = 1
MAX_FRAME_BYTES = 640 * 1024
"""Maximum bytes of a client's frame; enough for `MAX_CHARS` characters even if each one is escaped."""
HEARTBEAT_SECONDS = 25
"""Seconds between two pings of the server."""
MAX_CHARS = 100_000
"""Maximum characters of a message."""

CLOSE_TOO_BIG = 1009
"""Close code for a frame of more than `MAX_FRAME_BYTES`."""
CLOSE_BINARY = 1003
"""Close code for a binary frame."""
CLOSE_GONE = 1006
"""Close code for a connection that was lost without a close."""
CLOSE_RESTART = 1012
"""Close code after which the client reconnects at once: the server restarts, or the identity changed."""
CLOSE_SLOW = 1013
"""Close code after which the client reconnects later: it reads too slowly, or the database fails."""
CLOSE_BAD_HELLO = 4400
"""Close code for a first frame that is no valid hello of this version."""
CLOSE_TOKEN = 4401
"""Close code for a token or identity token that is unknown, invalid or revoked."""
CLOSE_SITE = 4403
"""Close code for an unknown site, or a page that may not use it."""
CLOSE_NO_HELLO = 4408
"""Close code if no hello came in time."""
CLOSE_RATE = 4429
"""Close code for too many connections, frames or refused frames."""

MOST_FILES = 5
"""Maximum files of one message."""
_FILE = re.compile(r"[0-9a-f]{32}")
_CID = re.compile(r"[A-Za-z0-9_.:\-]{1,64}")
_MID = re.compile(r"[a-z][0-9]{1,18}")
_TURN = re.compile(r"t[0-9]{1,18}")
_MESSAGE = re.compile(r"m[0-9]{1,18}")
SITE_PATTERN = r"^[a-z0-9][a-z0-9_\-]{0,63}$"
_SITE = re.compile(SITE_PATTERN)
_COMMAND = re.compile(r"[a-z][a-z0-9_\-]{0,31}")
_TOKEN = re.compile(r"[A-Za-z0-9_\-]{16,128}")
WORDS = re.compile(r"[A-Za-z0-9_+\-/]{0,64}")
"""Pattern of short hints such as a locale, a time zone or a conversation id."""
_MAX_INTEGER = 2**53

_RUN_STATES = {
    "answered": "done",
    "stopped": "aborted",
    "refused": "failed",
    "failed": "failed",
    "waiting": "queued",
}
"""State of a `run` frame by the state in which a turn ended."""
HIDDEN_FROM_PUBLIC = frozenset({"compaction", "memory", "pin"})
"""Kinds of stored events that visitors of public sites do not see; they get a bare number instead."""
_CUT = frozenset({"t", "event_seq", "id", "state", "kind", "through_turn", "to_mid"})
"""Fields of a compaction event that visitors of public sites may see."""


class BadFrame(BadInput):
    """Frame that does not follow the protocol; `cid` is that of the frame, None if unreadable."""

    sentence = "The frame does not follow the protocol."
    code = "bad_frame"
    advice = "The page and the server do not understand each other. Reload the page."

    def __init__(self, reason: str, *, cid: str | None = None) -> None:
        super().__init__(reason)
        self.cid = cid


class RateLimited(BadInput):
    """Refusal because a rate limit is reached; `what` says in the log what was counted."""

    sentence = "Too much came at once."
    code = "rate_limited"

    def __init__(self, *, retry_after_seconds: float, what: str = "messages") -> None:
        super().__init__(f"too many {what}")
        self.retry_after_seconds = retry_after_seconds
        self.advice = f"Please wait {max(1, round(retry_after_seconds))} seconds, then try again."


class CidUsed(BadInput):
    """Refusal of a message or edit whose `cid` belongs to a message with another text."""

    sentence = "Another message has this id already."
    code = "cid_used"
    advice = "Please send the message again, under a new id."


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """Frame that opens the chat of a site.

    `last_seq` is the number of the last event that the client has, 0 for none.
    """

    version: int
    site: str
    last_seq: int
    token: str | None = None
    locale: str = ""
    tz: str = ""
    session: str = ""
    """Conversation in which `last_seq` counts; empty if the client does not know it."""
    identity: str | None = None
    """Identity token that the site has signed; None for an anonymous visitor."""
    begin: bool = True
    """Whether a new visitor gets a conversation at once; False means with the first `Action`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """Frame that gives a new visitor a conversation, as before a file is sent; otherwise without effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Msg:
    """Frame with a new message; `attachments` are ids of uploads."""

    cid: str
    text: str
    attachments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """Frame with a new text for the person's message `m{seq}`."""

    cid: str
    seq: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteAsked:
    """Frame that deletes the person's message `m{seq}`."""

    cid: str
    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandAsked:
    """Frame that runs a command; `args` is its text, or its arguments by name."""

    cid: str
    command: str
    args: str | Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Frame that stops the running answer; `mid` is the one that the client shows, None if unknown."""

    mid: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PinAsked:
    """Frame that pins or unpins a message."""

    cid: str
    mid: str
    pinned: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Frame that rates an answer: `value` 1 is good, -1 bad, 0 withdraws the rating."""

    cid: str
    mid: str
    value: int
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """Frame that says up to which event the person has read."""

    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Resync:
    """Frame that asks for the whole text of the running answer `mid`."""

    mid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Identify:
    """Frame with which a visitor signs in; `identity` None signs out."""

    identity: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Typing:
    """Frame that says the visitor is typing, for an operator who has the conversation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ping:
    """Frame that asks for a `pong` with the same number."""

    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """Frame of an unknown kind, as of a later protocol; it is ignored."""

    t: str


ClientFrame = (
    Hello
    | Begin
    | Msg
    | Edit
    | DeleteAsked
    | CommandAsked
    | Stop
    | PinAsked
    | Judgement
    | Read
    | Resync
    | Identify
    | Typing
    | Ping
    | Unknown
)

Action = Begin | Msg | Edit | DeleteAsked | CommandAsked | PinAsked | Judgement | Identify
"""Frame for which a new visitor gets a conversation; others, such as `typing`, need an existing one."""


def read_frame(data: str | Mapping[str, Any]) -> ClientFrame:
    """Return the value of a client's frame. Raises BadFrame, with the cid of the frame if it can be read."""
    frame = read_object(data) if isinstance(data, str) else data
    kind = frame.get("t")
    if not isinstance(kind, str):
        raise BadFrame("a frame needs a text `t`", cid=_find_cid(frame))
    if (read := _READERS.get(kind)) is not None:
        return read(frame)
    match kind:
        case "msg":
            cid = _parse_pattern(frame, "cid", _CID)
            return Msg(cid=cid, text=_read_text(frame, cid), attachments=files(frame, cid))
        case "edit":
            cid, mid = _parse_pattern(frame, "cid", _CID), _parse_pattern(frame, "mid", _MESSAGE)
            return Edit(cid=cid, seq=int(mid[1:]), text=_read_text(frame, cid))
        case "delete":
            cid, mid = _parse_pattern(frame, "cid", _CID), _parse_pattern(frame, "mid", _MESSAGE)
            return DeleteAsked(cid=cid, seq=int(mid[1:]))
        case "stop":
            return Stop(mid=_parse_pattern(frame, "mid", _MID) if frame.get("mid") else None)
        case "read":
            return Read(seq=_parse_integer(frame, "seq"))
        case "resync":
            return Resync(mid=_parse_pattern(frame, "mid", _TURN))
        case "identify":
            return Identify(identity=_parse_identity(frame))
        case "ping":
            return Ping(n=_parse_integer(frame, "n"))
        case _:
            return Unknown(t=kind[:40])


def read_object(data: str | bytes) -> dict[str, Any]:
    """Return a JSON object; NaN and Infinity are refused. Raises BadFrame."""
    try:
        value = json.loads(data, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise BadFrame("not JSON") from None
    if not isinstance(value, dict):
        raise BadFrame("a JSON object is needed")
    return value


def clean(text: str) -> str:
    """Check that Postgres and JSON can store a text, and return it unchanged.

    Raises UnreadableMessage for NUL characters and lone surrogates.
    """
    if "\0" in text:
        raise UnreadableMessage("NUL in text")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UnreadableMessage("half a character in text") from None
    return text


def is_site(name: str) -> bool:
    """Return whether a text has the form of a site's name."""
    return _SITE.fullmatch(name) is not None


def is_token(token: str) -> bool:
    """Return whether a text has the form of a visitor's token."""
    return _TOKEN.fullmatch(token) is not None


def _refuse_constant(name: str) -> Never:
    raise ValueError(name)


def _parse_hello(frame: Mapping[str, Any]) -> Hello:
    token = frame.get("token")
    if token is not None and (not isinstance(token, str) or len(token) > 256):
        raise BadFrame("`token` is not a token")
    return Hello(
        version=_parse_integer(frame, "v"),
        site=_parse_pattern(frame, "site", _SITE),
        last_seq=_parse_integer(frame, "last_seq"),
        token=token or None,
        locale=_parse_hint(frame, "locale"),
        tz=_parse_hint(frame, "tz"),
        session=_parse_hint(frame, "session"),
        identity=_parse_identity(frame),
        begin=frame.get("begin") is not False,
    )


def _parse_identity(frame: Mapping[str, Any]) -> str | None:
    """Return the identity token of a frame; None if missing or empty. Its length is checked later."""
    identity = frame.get("identity")
    if identity is not None and not isinstance(identity, str):
        raise BadFrame("`identity` is not text", cid=_find_cid(frame))
    return identity or None


def _parse_command(frame: Mapping[str, Any]) -> CommandAsked:
    cid = _parse_pattern(frame, "cid", _CID)
    args = frame.get("args", "")
    if args is None:
        args = ""
    if not isinstance(args, str | dict):
        raise BadFrame("`args` is text or an object", cid=cid)
    if isinstance(args, str):
        args = _read_text(frame, cid, field="args") if args else ""
    return CommandAsked(cid=cid, command=_parse_pattern(frame, "command", _COMMAND), args=args)


def _pin(frame: Mapping[str, Any]) -> PinAsked:
    pinned = frame.get("pinned")
    if not isinstance(pinned, bool):
        raise BadFrame("`pinned` is true or false", cid=_find_cid(frame))
    return PinAsked(
        cid=_parse_pattern(frame, "cid", _CID), mid=_parse_pattern(frame, "mid", _MID), pinned=pinned
    )


def _parse_judgement(frame: Mapping[str, Any]) -> Judgement:
    cid, value, text = _parse_pattern(frame, "cid", _CID), frame.get("value"), frame.get("text", "")
    if isinstance(value, bool) or value not in (1, 0, -1):
        raise BadFrame("`value` is 1, 0 or -1", cid=cid)
    if not isinstance(text, str):
        raise BadFrame("`text` is not text", cid=cid)
    return Judgement(cid=cid, mid=_parse_pattern(frame, "mid", _MID), value=value, text=text)


_READERS: Mapping[str, Callable[[Mapping[str, Any]], ClientFrame]] = {
    "hello": _parse_hello, "command": _parse_command, "pin": _pin, "feedback": _parse_judgement,
    "begin": lambda _: Begin(), "typing": lambda _: Typing(),
}  # fmt: skip


def _read_text(frame: Mapping[str, Any], cid: str, *, field: str = "text") -> str:
    """Return a field that must be text; `clean` says whether it can be stored. Raises BadFrame."""
    text = frame.get(field)
    if not isinstance(text, str):
        raise BadFrame(f"`{field}` is not text", cid=cid)
    return text


def files(frame: Mapping[str, Any], cid: str | None = None) -> tuple[str, ...]:
    """Return the ids of uploads in a frame, each once. Raises BadFrame."""
    ids = frame.get("attachments") or []
    if not isinstance(ids, list) or len(ids) > MOST_FILES:
        raise BadFrame(f"`attachments` is a list of at most {MOST_FILES} ids", cid=cid)
    if not all(isinstance(one, str) and _FILE.fullmatch(one) for one in ids):
        raise BadFrame("`attachments` holds something that is no id", cid=cid)
    return tuple(dict.fromkeys(ids))


def _parse_pattern(frame: Mapping[str, Any], name: str, pattern: re.Pattern[str]) -> str:
    """Return a text field that matches a pattern. Raises BadFrame."""
    value = frame.get(name)
    if not isinstance(value, str) or pattern.fullmatch(value) is None:
        raise BadFrame(f"`{name}` is missing or malformed", cid=_find_cid(frame))
    return value


def _parse_integer(frame: Mapping[str, Any], name: str) -> int:
    """Return a field that is a whole number from 0 to 2**53 - 1. Raises BadFrame."""
    value = frame.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _MAX_INTEGER:
        raise BadFrame(f"`{name}` is not a whole number", cid=_find_cid(frame))
    return value


def _parse_hint(frame: Mapping[str, Any], name: str) -> str:
    """Return an optional hint such as a locale; empty if it is missing or malformed."""
    value = frame.get(name, "")
    return value if isinstance(value, str) and WORDS.fullmatch(value) else ""


def _find_cid(frame: Mapping[str, Any]) -> str | None:
    """Return the cid of a frame; None without a valid one."""
    cid = frame.get("cid")
    return cid if isinstance(cid, str) and _CID.fullmatch(cid) else None


# Frames that clients get.

Frame = dict[str, Any]
"""JSON object that is sent to a client."""


def encode(frame: Mapping[str, Any]) -> str:
    """Return a frame as compact JSON."""
    return json.dumps(frame, ensure_ascii=False, separators=(",", ":"))


def durable(event_seq: int, kind: str, payload: Mapping[str, Any]) -> Frame:
    """Return a stored event as a frame; a long message is shortened."""
    return {
        "t": kind,
        "event_seq": event_seq,
        **(shorten_message(payload) if kind in ("msg", "edited") else payload),
    }


def for_public(frame: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a stored event's frame as visitors of a public site may see it.

    Frames about summaries, memory and pins keep only their number, except for what visitors did themselves.
    Messages lose `memory`, and errors get public wording.
    """
    if frame["t"] == "compaction" and frame.get("state") in ("new", "separator"):
        # Visitors caused these events themselves.
        return {name: value for name, value in frame.items() if name in _CUT}
    if frame["t"] in HIDDEN_FROM_PUBLIC:
        return hidden(frame["event_seq"])
    if frame["t"] == "msg" and "memory" in frame:
        # Memory is not shown on public pages.
        frame = {name: value for name, value in frame.items() if name != "memory"}
    if frame["t"] == "msg" and "error" in frame:
        return {**frame, "text": advice_for_public(frame["error"]) or frame.get("text", "")}
    return frame


def hidden(event_seq: int) -> Frame:
    """Return the frame with the number of an event that the visitor may not see."""
    return {"t": "hidden", "event_seq": event_seq}


def ack(cid: str, accepted: Accepted) -> Frame:
    """Return the acknowledgement of a stored message; `dup` marks a repeated one."""
    frame: Frame = {"t": "ack", "cid": cid, "mid": accepted.mid, "event_seq": accepted.event_seq}
    return {**frame, "dup": True} if accepted.repeated else frame


def delete_ack(cid: str, seq: int) -> Frame:
    """Return the acknowledgement of a deleted message."""
    return {"t": "ack", "cid": cid, "mid": f"m{seq}"}


def feedback_ack(cid: str, mid: str, *, repeated: bool) -> Frame:
    """Return the acknowledgement of a rating."""
    frame: Frame = {"t": "ack", "cid": cid, "mid": mid}
    return {**frame, "dup": True} if repeated else frame


def error(failure: EvertalkError, *, cid: str | None = None, public: bool = False) -> Frame:
    """Return the error frame of a failure: its code, sentence and advice, without internal reasons.

    `cid` is that of the frame that failed, None without one. With `public`, advice for visitors of public
    sites replaces the sentence, if there is one. `retry_after` is in seconds.
    """
    plain = advice_for_public(failure.code) if public else ""
    advice = plain or failure.advice
    frame: Frame = {
        "t": "error",
        "code": failure.code,
        "message": advice if plain else failure.sentence,
        "advice": advice,
    }
    if cid:
        frame["cid"] = cid
    if mid := getattr(failure, "mid", None):
        frame["mid"] = mid
    seconds = getattr(failure, "retry_after_seconds", None)
    if isinstance(seconds, int | float):
        frame["retry_after"] = round(float(seconds), 1)
    return frame


def delta(*, turn: int, attempt: int, offset: int, text: str) -> Frame:
    """Return the frame with a new piece of a running answer; `offset` counts UTF-16 units."""
    return {"t": "delta", "mid": f"t{turn}", "turn": turn, "attempt": attempt, "off": offset, "text": text}


def stream(*, turn: int, attempt: int, text: str) -> Frame:
    """Return the frame with the whole text of a running answer, for a client that missed a piece."""
    return {"t": "stream", "mid": f"t{turn}", "turn": turn, "attempt": attempt, "text": text}


def read(event_seq: int) -> Frame:
    """Return the frame that says up to which event the person has read."""
    return {"t": "read", "seq": event_seq}


def run(turn: int, state: str, *, tool: str | None = None, subject: str = "") -> Frame:
    """Return the frame with the state of a turn, and with the running tool and its subject if given."""
    frame: Frame = {"t": "run", "turn": turn, "state": state}
    if not tool:
        return frame
    return {**frame, "tool": tool, **({"subject": subject} if subject else {})}


def organizing(event: Organizing) -> Frame:
    """Return the first frame of a compaction's progress, at 0 percent; the job sends the later ones."""
    frame: Frame = {"t": "compaction.progress", "id": str(event.job_id), "percent": 0}
    return {**frame, "stage": "waiting", "state": "running"}


def run_ended(ended: RunEnded) -> Frame:
    """Return the frame that says how a turn ended."""
    return run(ended.turn, _RUN_STATES[ended.state])


def ctx(measured: ContextMeasured) -> Frame:
    """Return the frame with the fill level of the context."""
    frame: Frame = {
        "t": "ctx",
        "used": measured.used,
        "reserved": measured.reserved,
        "limit": measured.limit,
        "pct": round(measured.percent, 1),
        "status": measured.status,
        "parts": dict(measured.parts),
        "stale": False,
        "next": _describe_next_summary(measured),
    }
    return {**frame, "estimated": True} if measured.estimated else frame


def _describe_next_summary(measured: ContextMeasured) -> Frame:
    """Return in how many turns the next automatic summary comes, or why none will."""
    if measured.summary_withheld:
        return {"withheld": measured.summary_withheld}
    return {"turns": measured.summary_turns, "soon": measured.summary_soon}


def command_progress(cid: str, command: str, message: str, percent: float | None) -> Frame:
    """Return the frame with a command's progress; `percent` None if unknown."""
    frame: Frame = {"t": "command.progress", "cid": cid, "command": command, "message": message}
    return frame if percent is None else {**frame, "percent": percent}


def bye(code: int, reason: str, *, retry_ms: int) -> Frame:
    """Return the frame that announces a close; the client shall reconnect after `retry_ms` milliseconds."""
    return {"t": "bye", "code": code, "reason": reason, "retry_ms": retry_ms}


def pong(n: int) -> Frame:
    """Return the answer to a ping, with the ping's number."""
    return {"t": "pong", "n": n}


def welcome(
    *,
    session: str,
    token: str | None,
    log_epoch: int | None,
    head: int,
    resumed: bool,
    events: Sequence[Mapping[str, Any]],
    commands: Sequence[Mapping[str, Any]],
    pinned: Sequence[str],
    ctx: Mapping[str, Any] | None,
    state: Mapping[str, Any],
    audience: str,
    model: Mapping[str, Any],
    site: Mapping[str, Any],
    identified: str = "",
    read: int = 0,
    files: Mapping[str, Any] | None = None,
    imports: bool = False,
) -> Frame:
    """Return the frame that starts a client: its conversation, missed events, offers and state.

    `head` is the number of the newest event, `resumed` says that `events` continue those that the client has.
    `token` is a new token to store, None to keep the old one.
    """
    frame: Frame = {
        "t": "welcome",
        "v": VERSION,
        "session": session,
        "log_epoch": log_epoch,
        "head": head,
        "resumed": resumed,
        "events": list(events),
        "commands": list(commands),
        "pinned": list(pinned),
        "limits": {"max_chars": MAX_CHARS} | ({"files": dict(files)} if files else {}),
        "ctx": ctx,
        "state": dict(state),
        "audience": audience,
        "heartbeat_ms": HEARTBEAT_SECONDS * 1000,
        "model": dict(model),
        "read": read,
        "site": dict(site),
    }
    if imports:
        frame["limits"]["imports"] = True
    if identified:
        frame["identified"] = identified
    return {**frame, "token": token} if token else frame
