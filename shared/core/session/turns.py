"""Values of a turn: inbound message, claim, events for clients, outcome, and the stored record of
a request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, Protocol

from shared.core.session.ledger import ledger_from_json
from shared.core.session.pruning import PruneDecision
from shared.core.session.session import Compaction, Entry, FrozenPrefix, Note, View
from shared.core.values.files import Attached
from shared.core.values.messages import Block, Text, text_without_files


class MessageReceipt(Protocol):
    """Rows that a channel stores together with a message, all or nothing.

    The store calls `lock` first, then stores the message, then calls `record`, in one transaction, which is
    `transaction` of each method.
    """

    def lock(self, transaction: Any) -> Awaitable[bool]:
        """Lock the source rows of the message; return whether it may be stored."""
        ...

    def record(self, transaction: Any, *, session_id: int, seq: int, turn: int) -> Awaitable[None]:
        """Store the channel's rows of the message that has become the entry `seq` of `turn`."""
        ...

    def find_joined_turn(self, transaction: Any, inbound: Inbound) -> Awaitable[int | None]:
        """Return the number of the turn that the message continues; None if it begins a turn."""
        ...

    def find_stored(self, transaction: Any, inbound: Inbound, *, is_stored: bool) -> Awaitable[int | None]:
        """Return the `seq` of the entry that already holds a message which the store did not accept.

        None if there is none. `is_stored` says that its key was stored before. Raises LeaseLost if another
        process is about to store it.
        """
        ...


class EditReceipt(Protocol):
    """Rows that a channel stores in the same transaction as an edit."""

    def record(self, transaction: Any) -> Awaitable[None]:
        """Store the channel's rows of the edit in this transaction."""
        ...


EditResult = Literal["replaced", "restarted", "last", "old", "same", "unknown"]
"""Results of an edit.

`replaced`: not answered yet; `restarted`: its answer begins again; `last`: the last answered message; `old`:
an earlier message; `same`: no change; `unknown`: no such message.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edited:
    """Result of an edit, and its effect on the message."""

    result: EditResult
    turn: int = 0
    """Newest turn with the message's question; 0 for an unknown message."""
    seq: int = 0
    """`seq` of the entry with the newest wording."""
    event_seq: int = 0
    """Number of the event that announces the edit; the session's newest event if nothing changed."""
    is_repeated: bool = False
    """True if the same edit was already stored."""
    shown: Stored | None = None
    """Event for clients; None if nothing changed."""
    at_ms: int = 0
    """Time of storing, in milliseconds since the epoch by the clock of Postgres."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inbound:
    """Message of a person, not yet stored, in the form that every channel passes to the session service."""

    session_id: int
    address_id: int
    text: str
    dedupe_key: str
    """Key unique within the session, such as `web:<cid>` or `tg:<bot>:<update>`; a second message with it is
    ignored.
    """
    cid: str | None = None
    """Client's id of the message, echoed so that the client recognises the bubble that it shows; None without
    one.
    """
    more: tuple[Block, ...] = ()
    """Pictures and texts of documents, placed after the text."""
    attached: tuple[Attached, ...] = ()
    """Files from which `more` was made, as clients receive them."""
    receipt: MessageReceipt | None = None

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Content of the message: its text, unless empty, then `more`."""
        return (*((Text(text=self.text),) if self.text else ()), *self.more)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """Confirmation that a message is stored, as entry `seq` of the turn `turn`."""

    session_id: int
    seq: int
    turn: int
    event_seq: int
    repeated: bool
    """True if a message with the same `dedupe_key` was stored before; nothing was added."""
    at_ms: int
    """Time of storing, in milliseconds since the epoch by the clock of Postgres."""

    @property
    def mid(self) -> str:
        """Public id of the stored message, such as `m12`."""
        return f"m{self.seq}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """Event: an attempt to answer a turn has started."""

    turn: int
    attempt: int
    """Number of the attempt at the turn, from 1 on; not on the scale of `Delta.attempt`."""
    epoch: int = 0
    """Epoch of the claim; parts of a streamed answer are stored under it."""
    address_id: int = 0
    """Id of the address that the turn came from and the answer goes to; a session may have several."""


def utf16_units(text: str) -> int:
    """Return the length of a text in UTF-16 units, as browsers count it.

    A character beyond the basic plane, such as an emoji, counts as two.
    """
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """Event: a piece of an answer that is being written; it is sent to clients and not stored yet.

    `offset` is the place of the piece in the answer, in UTF-16 units from its start.
    """

    turn: int
    attempt: int
    """Number of the draft; a higher one replaces all earlier text of the answer. It grows within an attempt
    at the turn, and is always above `RunStarted.attempt`.
    """
    offset: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRunning:
    """Event: the assistant starts to run the tool `name`."""

    turn: int
    name: str
    subject: str = ""
    """Subject of the tool call in a few words, such as the host of a page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Organizing:
    """Event: the answer waits for a summary of earlier messages ("Summarising earlier messages…")."""

    turn: int
    job_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Event that is committed to the database under the number `event_seq`.

    `payload` is what clients receive, see `web/protocol/wire.py`.
    """

    event_seq: int
    kind: str
    payload: Mapping[str, Any]
    ends: Literal["answered", "stopped", "refused", "failed"] | None = None
    """State of the turn that the same commit ended; None if it ended none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded:
    """Event: an attempt to answer a turn has ended in this state; `waiting` means that it will be retried."""

    turn: int
    state: Literal["answered", "stopped", "refused", "failed", "waiting"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextMeasured:
    """Event: size of a session's next request in tokens: used, reserved and allowed."""

    used: int
    """Tokens of the next request before a new message, as the provider counts them."""
    reserved: int = 0
    """Tokens kept free for recalled passages; not part of `used` or `limit`."""
    limit: int
    """Tokens that `used` may reach: the policy's limit less `reserved`."""
    percent: float
    """Percentage of `limit` that `used` takes."""
    status: Literal["ok", "warning", "critical"]
    parts: Mapping[str, int]
    """Tokens of each part; they add up to `used`."""
    estimated: bool
    summary_at: int = 0
    """Tokens of `used` above which a summary is due."""
    window: int = 0
    """Tokens of the model's window that are used."""
    summary_turns: int = 0
    """Estimated number of the person's messages until the next summary; 0 if it is due or cannot be
    estimated.
    """
    summary_soon: bool = False
    """True if one of the next two messages will probably cause a summary."""
    summary_withheld: str = ""
    """Reason why no automatic summary is made; empty if one comes at the limit."""


AnswerEnd = Literal["stop", "length", "filter", "cancelled"]
"""Reason why an answer ended: finished, at the model's output limit, by a filter, or cancelled by the person.
"""
ReplyEvent = RunStarted | Delta | ToolRunning | Organizing | Stored | RunEnded | ContextMeasured
Emit = Callable[[ReplyEvent], Awaitable[None]]
"""Function of a channel that receives events.

It must not raise, so that a closed page does not end the turn.
"""


_ROLES = {
    "person": "person", "assistant": "assistant", "operator": "operator", "tool": "tool", "program": "notice",
}  # fmt: skip


WHOLE_CHARS = 8_000
"""Characters of a person's message up to which lists and events show it whole."""
HEAD_CHARS = 4_096
"""Characters that lists and events show of a longer message; more than the 4,000 above which the chat folds
it.
"""


def shorten_message(payload: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a message's payload for lists and events, with a person's long text cut; others are unchanged.

    For more than 8,000 characters, `text` holds the first 4,096 and `chars` the full length.
    """
    text = payload.get("text")
    if payload.get("role") != "person" or not text or len(text) <= WHOLE_CHARS:
        return payload
    return {**payload, "text": text[:HEAD_CHARS], "chars": len(text)}


def message_payload(
    *, seq: int, turn: int, author: str, blocks: Sequence[Block], at: datetime, extra: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the payload of a `msg` event: `mid`, `role`, `text` without files, `at` (ISO 8601), `turn`, and
    `extra`.

    `extra` adds or replaces fields: cid, stop, partial, error, or another text.
    """
    return {
        "mid": f"m{seq}",
        "role": _ROLES[author],
        "text": text_without_files(blocks),
        "at": iso(at),
        "turn": turn,
        **extra,
    }


def notice_payload(*, event_seq: int, at: datetime, extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return the payload of a notice: `mid`, `role`, `at` (ISO 8601) and the fields of `extra`.

    A notice has no entry in the log, so its `mid`, such as `n12`, has the number of the event.
    """
    return {"mid": f"n{event_seq}", "role": "notice", "at": iso(at), **extra}


TITLE_CHARS = 60
"""Most characters of a conversation's title."""


def title_of(question: str) -> str:
    """Return the automatic title of a conversation: the first words of its first question.

    It has at most 60 characters; a shortened title ends with an ellipsis.
    """
    words = " ".join(question.split())
    if len(words) <= TITLE_CHARS:
        return words
    head, space, _ = words[:TITLE_CHARS].rpartition(" ")
    return f"{(head if space else words[: TITLE_CHARS - 1]).rstrip(' ,.;:–-')}…"


def iso(at: datetime) -> str:
    """Return a time, of any zone, in UTC as ISO 8601 with milliseconds and `Z`."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


StepOutcome = Literal["done", "failed", "unknown"]
"""Results of a tool call: it ran, it failed, or it was interrupted and may have run."""


GUEST_NETWORK = "guests"
"""Network name shared by the contacts of all guest chats, so that they share one daily cap."""
SECRETARY_NETWORK = "secretary:"
"""Prefix of the network name of a business account's customers, followed by bot and owner; they share one
cap.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """Spending caps in micro-dollars per day, unless a name says otherwise; None sets no cap.

    Days begin at midnight in `timezone`. `total` bounds the deployment, `person` and `visitor` one known and
    one anonymous contact, `session` one conversation.
    """

    total: int | None
    person: int | None
    visitor: int | None
    session: int | None
    network: int | None = None
    """Cap of all anonymous visitors from one IPv4 address or one IPv6 /56."""
    visitors_hour: int | None = None
    """Cap of all anonymous visitors together, per hour."""
    guests: int | None = None
    """Cap of all chats together in which a bot is a guest."""
    secretary: int | None = None
    """Cap of all customers together of one business account's owner."""
    customer: int | None = None
    """Cap of one customer of a business account."""
    timezone: str = "UTC"

    @property
    def limits(self) -> tuple[int | None, ...]:
        """Caps in micro-dollars in the order in which the SQL statements expect them; None where there is no
        cap.
        """
        return (
            self.visitor, self.person, self.session, self.total, self.network, self.visitors_hour,
            self.guests, self.secretary, self.customer,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Right of one process to answer one turn, with the state that the answer needs.

    It ends when another claim raises the epoch; writes under the old epoch then raise LeaseLost.
    """

    session_id: int
    turn: int
    epoch: int
    worker_id: int
    attempt: int
    faults: int
    """Number of failed attempts that were not caused by a passing problem, such as a busy provider."""
    stop_requested: bool
    told_waiting: bool
    """True if the person has already received the notice that the turn waits for its provider."""
    contact_id: int
    address_id: int
    channel: str
    anonymous: bool
    agent: str
    agent_config: Mapping[str, Any]
    token_ratio: float
    context_tokens: int
    measured_by: str
    """Name of the model that counted `context_tokens` and `token_ratio`; empty before the first count."""
    token_ratios: Mapping[str, float]
    """Ratios of tokens to estimated tokens, by name of models that answered in this session earlier."""
    turn_times: tuple[datetime, ...]
    """Times at which the newest turns of the session began."""
    reservation_id: int | None
    """Id of the reserved spending, of `reserved_micro` micro-dollars; None if nothing is reserved."""
    reserved_micro: int
    refused_scope: str | None
    """Scope of the spending cap that refused the turn, with its id, such as `contact:7`; None if none did."""
    view: View
    """View without entries, which come in `entries` or are loaded by the next statement."""
    token_scale: Mapping[str, Any] = field(default_factory=dict)
    """Stored ratios of the model's tokens to estimated ones, by kind of text."""
    waited_seconds: float = 0.0
    """Seconds since the turn was first postponed because its provider could not answer; 0 if it was not."""
    process_faults: int = 0
    """Number of processes that crashed while they answered this turn."""
    near_caps: bool = False
    """True if the turn may use most of a cap and the person was not warned today."""
    brought: bool = False
    """True if an API key or a site's token named the person, who then never counts as the owner."""
    contact_kind: Literal["person", "group"] = "person"
    display_name: str = ""
    compaction: str = ""
    """`off` while automatic summaries are switched off in this conversation."""
    timezone: str | None = None
    """Time zone of the person as their browser reported it; None if unknown."""
    goal: str = ""
    mode: str = ""
    recallable: bool = False
    """True if recall has something to search: hidden messages or the agent's files."""
    erased_turn: int = 0
    """Number of the last erased turn; 0 if none was erased."""
    after_death: bool = False
    """True if the process of the previous attempt ended without releasing its claim, for example by a crash.
    """
    entries: tuple[Entry, ...] | None = None
    """Entries of the view and the turn; None if they must be loaded separately."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """Usage and cost of one model call, to be stored in the ledger.

    `known` is False if the provider reported no usage. `cost_micro` is in micro-dollars, None if unknown;
    `aborted` is True for a failed attempt.
    """

    model: str
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    known: bool
    cost_micro: int | None
    request_id: str = ""
    aborted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendingWarning:
    """Warning for the person that spending caps are nearly used up, by their scopes.

    Scopes are `contact`, `session`, `network`, `visitors` and `total`.
    """

    scopes: tuple[str, ...]
    event_seq: int | None = None
    """Number of the stored event with the warning; None if the person gets none."""
    payload: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextAudit:
    """Record of what the last model call of a turn received and how it was made to fit; one row per turn.

    Limits and sizes are in tokens; `reported` is the provider's count, None if it gave none.
    """

    model_alias: str
    model_context_limit: int
    input_budget: int
    hard_limit: int
    estimated_before: int
    estimated_after_summary: int
    estimated_after_prune: int
    reported: int | None
    context_tokens: int
    summary_triggered: bool = False
    prune_triggered: bool = False
    overflow_rejected: bool = False
    parts: Mapping[str, int] = field(default_factory=dict)
    part_hashes: tuple[str, ...] = ()
    entry_from: int = 0
    entry_through: int = 0
    base_turn: int = 0
    head: int | None = None
    prune_seqs: tuple[int, ...] = ()
    renderer_version: int = 1
    recipe: Mapping[str, Any] = field(default_factory=dict)
    """More facts for rebuilding the request, see `services/admin/context_inspector.py`."""
    model_ms: int | None = None
    """Milliseconds of all model calls of the turn; None if not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTurn:
    """Stored record from which the last request of a turn can be rebuilt."""

    audit: ContextAudit
    head: Compaction | None
    entries: tuple[Entry, ...]
    """Live entries and pins in the order of the request; the audit says how each was shortened."""
    parts: Mapping[str, str]
    """Parts of the prompt, by their SHA-256 in hex."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOrder:
    """Job to be stored, unless one with its key is due or runs."""

    kind: Literal["flush", "compact", "import"]
    key: str
    """Key that names what the job is for, and exists once among due and running jobs.

    It has the kind, the session, and what else distinguishes the job, such as cycle, threshold or trigger.
    Later turns order the same job again without effect; when it ends, it checks for more work.
    """
    trigger: str
    payload: Mapping[str, Any] = field(default_factory=dict)
    delay_seconds: float = 0.0
    """Seconds before the job may start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DueJob:
    """Stored job that a worker may run now; `kind` names the function that runs it."""

    id: int
    kind: str
    attempt: int = 0
    """Number of earlier attempts; each attempt is announced once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """End of a turn, with all changes that are committed in the same transaction.

    None in a size, ratio or scale keeps the stored value.
    """

    state: Literal["answered", "stopped", "refused", "failed"]
    blocks: tuple[Block, ...] | None
    """Blocks of the answer's entry; None if only a notice is shown."""
    tokens: int
    screen: Mapping[str, Any]
    """Fields of the event for clients besides the entry: a notice's text, `stop`, `partial`, `error`."""
    error_code: str | None = None
    refused_scope: str | None = None
    """Scope of the cap that refused the turn: `contact`, `session`, `network`, `visitors` or `total`; None if
    none did.
    """
    spent: tuple[Spending, ...] = ()
    settled_micro: int = 0
    """Cost of the turn in micro-dollars, which replaces its reservation."""
    audit: ContextAudit | None = None
    prompt_parts: Mapping[str, str] = field(default_factory=dict)
    """New parts of the prompt, by their SHA-256 in hex, without those that this process stored before."""
    prunes: tuple[PruneDecision, ...] = ()
    context_tokens: int | None = None
    """Tokens of the whole view after this turn, even if less of it was sent; None keeps the stored number."""
    turn_tokens: int = 0
    """Tokens that this turn adds to a view, as the model counts them."""
    context_limit: int | None = None
    context_reserved: int | None = None
    token_scale: Mapping[str, Any] | None = None
    token_ratio: float | None = None
    measured_by: str | None = None
    view_epoch: int | None = None
    """Epoch of the view after waiting for a summary; None takes the view's epoch of the claim."""
    release_hold: bool = False
    """True ends the wait of automatic compaction after an undo."""
    job: JobOrder | None = None
    first_text_at: float | None = None
    """Time of the answer's first text on the process's monotonic clock, in seconds; None without text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerStored:
    """Result of storing an answer: number and payload of its event, and the job to announce (None without
    one).
    """

    event_seq: int
    payload: Mapping[str, Any]
    job: DueJob | None
    another_waits: bool
    """True if another turn waited at the time of the commit; a later one is started by the process that
    accepts it.
    """
    view_moved: bool = False
    """True if a summary was made or undone during the turn, which makes its measured sizes invalid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """Description of a picture, to be stored with the cost of its calls; empty if none could be made."""

    attachment_id: int
    description: str
    session_id: int
    contact_id: int
    turn: int
    spent: tuple[Spending, ...]
    reservation_id: int | None


def compaction_from_json(raw: Mapping[str, Any] | None) -> Compaction | None:
    """Return a compaction from its database row as JSON; None for None."""
    if raw is None:
        return None
    return Compaction(
        id=raw["id"],
        kind=raw["kind"],
        from_turn=raw["from_turn"],
        through_turn=raw["through_turn"],
        through_seq=raw["through_seq"],
        summary_text=raw["summary_text"],
        ledger=ledger_from_json(raw["ledger"]),
        tokens=raw["tokens"],
    )


def notes_from_json(raw: list[Mapping[str, Any]] | None) -> tuple[Note, ...]:
    """Return notes from their database rows as JSON, in the same order; None gives no notes."""
    return tuple(
        Note(
            id=item["id"],
            kind=item["kind"],
            text=item["text"],
            subject=item["subject"],
            authority=item["authority"],
            importance=item["importance"],
            observed_at=datetime.fromisoformat(item["observed_at"]),
            event_date=item["event_date"],
        )
        for item in raw or ()
    )


def frozen_from_json(raw: Mapping[str, Any] | None) -> FrozenPrefix | None:
    """Return a frozen prefix from its stored JSON; None if none is stored."""
    if raw is None:
        return None
    return FrozenPrefix(
        notes_block=raw["block"],
        notes=tuple(raw["notes"]),
        ended=notes_from_json(raw["ended"]),
        pins=frozenset(raw["pins"]),
    )
