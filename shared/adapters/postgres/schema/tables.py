"""Every table, with the constraints that carry the promise; `migrations/` is compared with this file.

Hot statements are written as SQL in the stores beside this file: the tables here are their contract. What
SQLModel cannot say, which is functions, triggers, views and partitions, stands in `migrations/` alone.
How long rows are kept stands in `retention.py`, what forgetting does with them in `erasure_map.py`.
"""

from __future__ import annotations

from datetime import date, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Date,
    Double,
    ForeignKeyConstraint,
    Identity,
    Index,
    Table,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import TSVECTOR, ExcludeConstraint
from sqlmodel import SQLModel

import shared.adapters.postgres.schema.administration  # noqa: F401  the tables register themselves
from shared.adapters.postgres.db.columns import (
    belongs,
    big,
    digest,
    field,
    flag,
    identity,
    json,
    moment,
    one_of,
    public_id,
    small,
    small_list,
    text_list,
    words,
)
from shared.adapters.postgres.db.sort_keys import CACHE_PCT, CONTEXT_PCT, KNOWN_COST, READ_TOKENS


def found_words() -> Any:
    return Column(TSVECTOR, nullable=False)


def by_word(name: str, owner: str) -> Index:
    """Each owner's words are keys of their own, so that nobody's search walks through another's text."""
    return Index(
        name,
        text(f"recall_keys({owner}, vector)"),
        postgresql_using="gin",
        postgresql_with={"fastupdate": "off"},
    )


SOON_VACUUMED = {"autovacuum_vacuum_scale_factor": "0.02", "autovacuum_analyze_scale_factor": "0.05"}
"""Each turn leaves old rows behind: among a million, a fifth of them is too many to wait for."""
EMPTIED = {"autovacuum_vacuum_scale_factor": "0", "autovacuum_vacuum_threshold": "2000"}
"""Rows of a moment: what counts is how many are gone, not what share."""


def by_time(name: str, column: str) -> Index:
    """Each row that is added changes the newest range that was summed up: a small one is soon left behind."""
    ranges = {"pages_per_range": 16, "autosummarize": "on"}
    return Index(name, column, postgresql_using="brin", postgresql_with=ranges)


PURPOSES = "chat", "flush", "compact", "repair", "delegate", "tidy", "transcribe", "picture", "speech"
"""What a call is for, as the ledger knows it."""


class DeploymentTable(SQLModel, table=True):
    """One row: what is true of this installation. A restore and a promoted standby raise `log_epoch`."""

    __tablename__ = "deployment"
    __table_args__ = (CheckConstraint("id = 1", name="deployment_is_one_row"),)
    id: int = field(small(key=True, default="1"))
    log_epoch: int = field(big(default="1"))
    created_at: datetime = field(moment())
    timeline: str = field(words(default=""))
    """Of the server that wrote last; empty where it does not tell."""


class PartyTable(SQLModel, table=True):
    """A person, or a group; owns sessions and notes."""

    __tablename__ = "parties"
    __table_args__ = (
        one_of("kind", "person", "group", name="party_kind"),
        CheckConstraint("merged_into <> id", name="party_not_merged_into_itself"),
        Index("parties_merged", "merged_into", postgresql_where=text("merged_into IS NOT NULL")),
        Index("parties_by_name", text('lower(display_name) COLLATE "C"'), "id"),
        Index("parties_by_pieces", text("name_pieces(display_name)"), postgresql_using="gin"),
        CheckConstraint("(on_hold_since IS NULL) = (on_hold_by IS NULL)", name="hold_says_whose"),
        Index("parties_on_hold", "id", postgresql_where=text("on_hold_since IS NOT NULL")),
        CheckConstraint(
            "network IS NULL OR network ~ '^[0-9a-f]{32}$' AND network_at IS NOT NULL",
            name="network_is_a_hash",
        ),
        Index("parties_seen_somewhere", "network_at", postgresql_where=text("network IS NOT NULL")),
    )
    id: int = field(identity())
    public_id: UUID = field(public_id())
    kind: str = field(words(default="person"))
    display_name: str = field(words(default=""))
    timezone: str | None = field(words(null=True))
    anonymous: bool = field(flag())
    merged_into: int | None = field(big(null=True, to="parties.id"))
    created_at: datetime = field(moment())
    on_hold_since: datetime | None = field(moment(null=True))
    on_hold_by: str | None = field(words(null=True))
    network: str | None = field(words(null=True))
    """Where an anonymous visitor was seen last: a keyed hash of an IPv4 address or an IPv6 /56."""
    network_at: datetime | None = field(moment(null=True))


class SessionTable(SQLModel, table=True):
    """The never-ending conversation. Its row is the lock and the source of every gap-free number.

    No index is over what a turn changes, nor has it in its condition: else each index would hear of each
    step of a turn. What the dashboard orders by is copied to `session_list`; who waits, `turns` know.
    """

    __tablename__ = "sessions"
    __table_args__ = (
        CheckConstraint("base_turn <= answered_turn", name="session_hides_only_ended_turns"),
        one_of("voice", "off", "on", "auto", name="session_voice"),
        CheckConstraint("flushed_turn <= answered_turn", name="session_flushes_only_ended_turns"),
        CheckConstraint("answered_turn < next_turn", name="session_answers_only_known_turns"),
        CheckConstraint("open_turn IS NULL OR open_turn = next_turn - 1", name="session_collects_newest"),
        CheckConstraint("jsonb_typeof(token_ratios) = 'object'", name="session_ratios_by_model"),
        CheckConstraint("erased_turn <= base_turn", name="session_hides_what_was_erased"),
        CheckConstraint(
            "held_after IS NULL OR held_after <= answered_turn + 1", name="session_holds_what_comes_next"
        ),
        Index("sessions_by_party", "party_id"),
        Index("sessions_by_channel", "last_channel", "id"),
        Index("sessions_by_agent", "agent_id", "id"),
        Index("sessions_troubled_by_id", "id", postgresql_where=text("troubled_at IS NOT NULL")),
        Index("sessions_unflushed", "id", postgresql_where=text("flushed_turn < base_turn")),
        Index("sessions_unindexed", "id", postgresql_where=text("indexed_turn < base_turn")),
        CheckConstraint(
            "num_nulls(person_name, person_kind, person_anonymous) IN (0, 3)",
            name="session_shows_whole_person",
        ),
        Index("sessions_without_person", "id", postgresql_where=text("person_kind IS NULL")),
        {"postgresql_with": {"fillfactor": "70", **SOON_VACUUMED}},
    )
    id: int = field(identity())
    public_id: UUID = field(public_id())
    party_id: int = field(big(to="parties.id"))
    agent_id: int = field(big(to="agents.id"))
    next_seq: int = field(big(default="1"))
    next_event_seq: int = field(big(default="1"))
    next_turn: int = field(big(default="1"))
    open_turn: int | None = field(big(null=True))
    answered_turn: int = field(big(default="0"))
    turn_epoch: int = field(big(default="0"))
    leased_by: int | None = field(big(null=True))
    retry_at: datetime | None = field(moment(null=True))
    view_epoch: int = field(big(default="0"))
    base_turn: int = field(big(default="0"))
    head: int | None = field(big(null=True))
    redo: int | None = field(big(null=True))
    hold_compaction: bool = field(flag())
    flushed_turn: int = field(big(default="0"))
    cycle: int = field(big(default="0"))
    goal: str = field(words(default=""))
    mode: str = field(words(default=""))
    context_tokens: int = field(big(default="0"))
    context_limit: int = field(big(default="0"))
    token_ratio: float = field(Column(Double, nullable=False, server_default=text("1.0")))
    created_at: datetime = field(moment())
    last_active_at: datetime = field(moment())
    compaction_rest: dict[str, Any] | None = field(json(null=True))
    measured_by: str = field(words(default=""))
    token_ratios: dict[str, Any] = field(json())
    indexed_turn: int = field(big(default="0"))
    model: str = field(words(default=""))
    """What the person chose among the agent's models; empty is the agent's own."""
    open_address: int | None = field(big(null=True))
    """Where the turn that still collects messages comes from; those of another place begin their own."""
    archived_at: datetime | None = field(moment(null=True))
    """Since its person goes on in another session; it accepts nothing."""
    left_by: list[int] | None = field(Column(ARRAY(BigInteger), nullable=True))
    """Addresses that once led here; a screen that has not heard of it yet may not write."""
    erased_turn: int = field(big(default="0"))
    held_after: int | None = field(big(null=True))
    """While a person is asked for or here: the last turn that the assistant still answers."""
    last_channel: str = field(words(default=""))
    """Where the newest turn came from, written with it; empty before the first."""
    troubled_at: datetime | None = field(moment(null=True))
    """Set with every turn that fails and every job that dies; null only when neither is so any more."""
    person: str = field(words(default=""))
    """The name of whom it belongs to, in small letters; triggers keep it, and the list is searched by it."""
    person_name: str | None = field(words(null=True))
    person_kind: str | None = field(words(null=True))
    person_anonymous: bool | None = field(Column(Boolean, nullable=True))
    """What the list shows of that person, kept in the same way; null until a worker tells an old session."""
    leased_at: datetime | None = field(moment(null=True))
    """When `leased_by` claimed it; null where a version before did."""
    voice: str = field(words(default="off"))
    """Whether its answers are spoken; `auto` where a voice message is answered."""


class SessionTotalsTable(SQLModel, table=True):
    """Lifetime sums, written with each turn; never the same thing as "context now"."""

    __tablename__ = "session_totals"
    __table_args__ = (
        ForeignKeyConstraint(["session_id"], ["sessions.id"], name="totals_session"),
        Index("totals_by_compactions", "compaction_count", "session_id"),
        {"postgresql_with": {"fillfactor": "70", **SOON_VACUUMED}},
    )
    session_id: int = field(big(key=True))
    total_tokens: int = field(big(default="0"))
    """All that was read, cached or not, and all that was said: the sum of the four, by a trigger."""
    total_tokens_estimate: int = field(big(default="0"))
    """Of each turn its last request, as it was estimated, and what was said: sums that need no provider."""
    input_tokens: int = field(big(default="0"))
    output_tokens: int = field(big(default="0"))
    cache_read_tokens: int = field(big(default="0"))
    cache_write_tokens: int = field(big(default="0"))
    cost_micro: int = field(big(default="0"))
    cost_unknown_calls: int = field(big(default="0"))
    compaction_count: int = field(big(default="0"))


class ListedSessionTable(SQLModel, table=True):
    """What the dashboard's list is ordered and filtered by, as it was some seconds ago; a worker keeps it.

    Columns are those of `sessions` and `session_totals`, by the same names. `person` is changed with the
    session's own, in the same transaction: a forgotten name is nowhere.
    """

    __tablename__ = "session_list"
    __table_args__ = (
        ForeignKeyConstraint(["id"], ["sessions.id"], name="listed_session", ondelete="CASCADE"),
        CheckConstraint("context_limit >= 0 AND next_turn > 0", name="listed_session_counts"),
        Index("list_by_activity", "last_active_at", "id", postgresql_include=["agent_id", "person"]),
        Index("list_by_turns", "next_turn", "id"),
        Index("list_by_context", text(f"coalesce({CONTEXT_PCT}, -1)"), "id"),
        Index("list_by_input", text(f"({READ_TOKENS})"), "id"),
        Index("list_by_output", "output_tokens", "id"),
        Index("list_by_cost", text(f"coalesce({KNOWN_COST}, -1)"), "id"),
        Index("list_by_cache", text(f"coalesce({CACHE_PCT}, -1)"), "id"),
        Index("list_troubled", "last_active_at", "id", postgresql_where=text("troubled_at IS NOT NULL")),
        Index(
            "list_filling",
            "last_active_at",
            "id",
            postgresql_where=text(f"coalesce({CONTEXT_PCT}, -1) >= 70"),
        ),
        Index(
            "list_nearly_full",
            "last_active_at",
            "id",
            postgresql_where=text(f"coalesce({CONTEXT_PCT}, -1) >= 90"),
        ),
        {"postgresql_with": SOON_VACUUMED},
    )
    id: int = field(big(key=True))
    public_id: UUID = field(public_id(unique=False, made=False))
    party_id: int = field(big())
    agent_id: int = field(big())
    next_turn: int = field(big())
    context_tokens: int = field(big())
    context_limit: int = field(big())
    last_active_at: datetime = field(moment(now=False))
    troubled_at: datetime | None = field(moment(null=True))
    input_tokens: int = field(big(default="0"))
    output_tokens: int = field(big(default="0"))
    cache_read_tokens: int = field(big(default="0"))
    cache_write_tokens: int = field(big(default="0"))
    cost_micro: int = field(big(default="0"))
    cost_unknown_calls: int = field(big(default="0"))
    last_channel: str = field(words())
    person: str = field(words())


ListChange = Table(
    "session_list_changes",
    SQLModel.metadata,
    Column("session_id", BigInteger, nullable=False),
    CheckConstraint("session_id > 0", name="list_change_of"),
    postgresql_with=EMPTIED,
)
"""Sessions that `session_list` is to be told of, once for each change. Without a key, for each turn writes
a row.
"""


class SessionSpendTable(SQLModel, table=True):
    """What a conversation spent for one purpose with one model, added up with each row of the ledger."""

    __tablename__ = "session_spend"
    __table_args__ = (
        ForeignKeyConstraint(["session_id"], ["sessions.id"], name="spend_session"),
        one_of("purpose", *PURPOSES, name="spend_purpose"),
        CheckConstraint(
            "aborted BETWEEN 0 AND calls AND unknown_cost BETWEEN 0 AND calls "
            "AND unknown_tokens BETWEEN 0 AND calls AND calls > 0",
            name="spend_counts_calls",
        ),
        CheckConstraint("(cost_micro IS NULL) = (unknown_cost = calls)", name="spend_is_null_when_unknown"),
        {"postgresql_with": {"fillfactor": "70", **SOON_VACUUMED}},
    )
    session_id: int = field(big(key=True))
    purpose: str = field(words(key=True))
    model: str = field(words(key=True))
    calls: int = field(big())
    aborted: int = field(big())
    input_tokens: int = field(big())
    output_tokens: int = field(big())
    cache_read_tokens: int = field(big())
    cache_write_tokens: int = field(big())
    cost_micro: int | None = field(big(null=True))
    unknown_cost: int = field(big())
    unknown_tokens: int = field(big())


class AddressTable(SQLModel, table=True):
    """A place in a channel: a Telegram chat and topic, a visitor of a site."""

    __tablename__ = "addresses"
    __table_args__ = (
        UniqueConstraint("channel", "account", "chat", "thread", name="address_is_one_place"),
        Index("addresses_by_session", "session_id"),
        Index("addresses_by_party", "party_id"),
        Index(
            "addresses_by_pieces",
            text("name_pieces(title || ' ' || chat)"),
            postgresql_using="gin",
            postgresql_where=text("channel <> 'web'"),
        ),
    )
    id: int = field(identity())
    channel: str = field(words())
    account: str = field(words())
    chat: str = field(words())
    thread: str = field(words(default=""))
    party_id: int = field(big(to="parties.id"))
    session_id: int = field(big(to="sessions.id"))
    created_at: datetime = field(moment())
    title: str = field(words(default=""))
    settings: dict[str, Any] = field(json())
    unreachable_since: datetime | None = field(moment(null=True))
    read_seq: int = field(big(default="0"))
    contact: dict[str, Any] = field(json())
    """What the page and the site say of who writes there: page, browser, locale, e-mail, attributes."""


class VisitorTable(SQLModel, table=True):
    """A browser's token, as a hash; it opens one address and nothing else."""

    __tablename__ = "visitors"
    __table_args__ = (Index("visitors_by_address", "address_id"),)
    token_hash: bytes = field(digest(key=True))
    site: str = field(words())
    address_id: int = field(big(to="addresses.id"))
    created_at: datetime = field(moment())
    last_seen_at: datetime = field(moment())
    expires_at: datetime = field(moment(now=False))
    identified: bool = field(flag())
    """Given for a site's signature; it lives for a day, and its place is that of a signed-in person."""


class RecoveryCodeTable(SQLModel, table=True):
    """Brings an anonymous conversation to another browser; each place has one, as a hash."""

    __tablename__ = "recovery_codes"
    address_id: int = field(big(key=True, to="addresses.id"))
    code_hash: bytes = field(digest(unique=True))
    created_at: datetime = field(moment())
    expires_at: datetime = field(moment(now=False))


class EntryTable(SQLModel, table=True):
    """One message of the log, only ever added; whoever is in no hurry reads and writes the view `entries`.

    Plain words stand in `words`, everything else in `blocks`; what follows from another column is left out.

    For its rows and those of `turns`, `turn_entries` and `events` no foreign key looks for what they
    belong to: it would lock that against nothing, at the price of a record of the log for each row that a
    turn adds. Sessions, turns, entries and addresses are there for good: no statement deletes one, other
    keys (`totals_session`, `visitors_address_id_fkey`) and this table's trigger keep the database from
    it, and all four are written by statements that hold the session's row and take its number from there.
    `check_invariants` looks for rows that belong to nothing.
    """

    __tablename__ = "entry_rows"
    __table_args__ = (
        Index(
            "entry_is_stored_once",
            "session_id",
            "dedupe_key",
            unique=True,
            postgresql_where=text("dedupe_key IS NOT NULL"),
        ),
        one_of("role", "user", "assistant", name="entry_role"),
        one_of("author", "person", "assistant", "tool", "operator", "program", name="entry_author"),
        CheckConstraint("seq > 0", name="entry_seq_counts_from_one"),
        CheckConstraint("num_nonnulls(words, blocks) = 1", name="entry_is_words_or_blocks"),
    )
    session_id: int = field(big(key=True))
    seq: int = field(big(key=True))
    role: str | None = field(words(null=True))
    """Null where the author says it: the assistant's is `assistant`, everybody else's `user`."""
    author: str = field(words())
    blocks: list[Any] | None = field(json(null=True))
    tokens: int = field(small())
    dedupe_key: str | None = field(words(null=True))
    cid: str | None = field(words(null=True))
    """Null where the key has it."""
    replaces_seq: int | None = field(big(null=True))
    at: datetime = field(moment())
    words: str | None = field(words(null=True))


class TurnTable(SQLModel, table=True):
    """One or more messages of a person and all that is done about them."""

    __tablename__ = "turns"
    __table_args__ = (
        one_of("state", "open", "claimed", "answered", "stopped", "refused", "failed", name="turn_state"),
        CheckConstraint("(ended_at IS NULL) = (state IN ('open', 'claimed'))", name="turn_end_has_a_time"),
        CheckConstraint(
            "refused_scope IS NULL "
            "OR refused_scope IN ('party', 'session', 'network', 'visitors', 'total') "
            "AND state IN ('refused', 'answered') AND error_code IS NOT NULL "
            "AND error_code IN ('cap_reached', 'hour_cap_reached')",
            name="turn_scope_refused",
        ),
        CheckConstraint(
            "waits_for IS NULL OR waits_for <> '' AND attempt > 0", name="turn_waits_after_asking"
        ),
        Index("turns_unended", "session_id", "turn_no", postgresql_where=text("ended_at IS NULL")),
        Index("turns_failed", "session_id", "turn_no", postgresql_where=text("error_code IS NOT NULL")),
        by_time("turns_by_time", "opened_at"),
        {"postgresql_with": {"fillfactor": "85", **SOON_VACUUMED}},
    )
    session_id: int = field(big(key=True))
    turn_no: int = field(big(key=True))
    state: str = field(words(default="open"))
    channel: str = field(words())
    address_id: int = field(big())
    attempt: int = field(small(default="0"))
    faults: int = field(small(default="0"))
    epoch: int = field(big(default="0"))
    stop_requested: bool = field(flag())
    told_waiting: bool = field(flag())
    error_code: str | None = field(words(null=True))
    opened_at: datetime = field(moment())
    claimed_at: datetime | None = field(moment(null=True))
    ended_at: datetime | None = field(moment(null=True))
    refused_scope: str | None = field(words(null=True))
    """Whose cap said no; null of others, and of those before it was written down. A reminder that met one is
    answered with its own words."""
    waits_for: str | None = field(words(null=True))
    """The provider, by host, that the last attempt was put back for; its next answer makes the turn due."""
    first_token_ms: int | None = field(small(null=True))
    """From the person's message to the answer's first text; null where nothing was streamed."""


class TurnEntryTable(SQLModel, table=True):
    """Which turn an entry belongs to, and at which step; the order of the context."""

    __tablename__ = "turn_entries"
    __table_args__ = (
        UniqueConstraint("session_id", "turn_no", "step", name="turn_step_is_one_entry"),
        CheckConstraint("replaced_by > seq", name="turn_entry_is_replaced_later"),
        Index(
            "turn_entries_replaced",
            "session_id",
            "replaced_by",
            postgresql_where=text("replaced_by IS NOT NULL"),
        ),
    )
    session_id: int = field(big(key=True))
    seq: int = field(big(key=True))
    turn_no: int = field(big())
    step: int = field(small())
    replaced_by: int | None = field(big(null=True))
    """The entry with the newer words, where its person edited the question that this one is or answers.

    Statements ask for `coalesce(replaced_by, 0) <= 0`: before there are statistics, a plan believes that
    `IS NULL` is true of one row in two hundred, and joins in the square.
    """


class TurnStepTable(SQLModel, table=True):
    """A model or tool round of a turn: an intent before each side effect, then its outcome."""

    __tablename__ = "turn_steps"
    __table_args__ = (
        belongs("turns", "session_id", "turn_no", name="step_turn"),
        one_of("status", "intent", "done", "failed", "unknown", name="step_status"),
        by_time("steps_by_time", "at"),
    )
    session_id: int = field(big(key=True))
    turn_no: int = field(big(key=True))
    call_id: str = field(words(key=True))
    tool: str = field(words())
    status: str = field(words(default="intent"))
    epoch: int = field(big())
    at: datetime = field(moment())
    ended_at: datetime | None = field(moment(null=True))


class LinkTable(SQLModel, table=True):
    """What hides a range of turns; the active ones cover 1 … base without gap or overlap."""

    __tablename__ = "links"
    __table_args__ = (
        ForeignKeyConstraint(["session_id"], ["sessions.id"], name="link_session"),
        one_of("kind", "summary", "digest", "separator", "new", "window", name="link_kind"),
        CheckConstraint("from_turn <= through_turn", name="link_range"),
        CheckConstraint("from_turn > 0", name="link_counts_from_one"),
        CheckConstraint("tokens >= 0", name="link_tokens"),
        Index("links_of_session", "session_id", "id"),
        Index("links_written", "id", postgresql_where=text("kind IN ('summary', 'digest')")),
        Index("links_undone", "session_id", postgresql_where=text("undone_at IS NOT NULL")),
        by_time("links_by_time", "created_at"),
        ExcludeConstraint(
            ("session_id", "="),
            (text("int8range(from_turn, through_turn, '[]')"), "&&"),
            name="active_links_do_not_overlap",
            where=text("active"),
            deferrable=True,
            initially="DEFERRED",
        ),
    )
    id: int = field(identity())
    public_id: UUID = field(public_id())
    session_id: int = field(big())
    kind: str = field(words())
    from_turn: int = field(big())
    through_turn: int = field(big())
    from_seq: int = field(big())
    through_seq: int = field(big())
    parent: int | None = field(big(null=True))
    active: bool = field(flag(default=True))
    trigger: str = field(words())
    summary_text: str = field(words(default=""))
    ledger: dict[str, Any] = field(json())
    contract: dict[str, Any] = field(json())
    audit: dict[str, Any] = field(json())
    tokens: int = field(small(default="0"))
    tokens_before: int = field(big(default="0"))
    tokens_after: int = field(big(default="0"))
    model: str = field(words(default=""))
    cost_micro: int | None = field(big(null=True))
    duration_ms: int = field(big(default="0"))
    flush_id: int | None = field(big(null=True))
    job_id: int | None = field(big(null=True))
    focus: str = field(words(default=""))
    created_at: datetime = field(moment())
    undone_at: datetime | None = field(moment(null=True))


class FlushTable(SQLModel, table=True):
    """One silent pass over a range of turns, and what came of it; its stray words are shown to nobody."""

    __tablename__ = "flushes"
    __table_args__ = (
        ForeignKeyConstraint(["session_id"], ["sessions.id"], name="flush_session"),
        UniqueConstraint("session_id", "cycle", "threshold", "through_turn", name="flush_once_per_range"),
        one_of("outcome", "running", "saved", "nothing", "failed", name="flush_outcome"),
        Index("flushes_of_session", "session_id", "id"),
    )
    id: int = field(identity())
    public_id: UUID = field(public_id())
    session_id: int = field(big())
    cycle: int = field(big())
    threshold: str = field(words())
    from_turn: int = field(big())
    through_turn: int = field(big())
    outcome: str = field(words(default="running"))
    note_count: int = field(small(default="0"))
    stray_text: str = field(words(default=""))
    error: str = field(words(default=""))
    model: str = field(words(default=""))
    tokens: int = field(big(default="0"))
    cost_micro: int | None = field(big(null=True))
    job_id: int | None = field(big(null=True))
    created_at: datetime = field(moment())
    ended_at: datetime | None = field(moment(null=True))


class NoteTable(SQLModel, table=True):
    """One thing remembered about a party; superseded or forgotten, never silently changed."""

    __tablename__ = "notes"
    __table_args__ = (
        UniqueConstraint("party_id", "scope", "hash", name="note_is_kept_once"),
        one_of("authority", "person", "assistant", "tool", "operator", name="note_authority"),
        CheckConstraint("importance BETWEEN 1 AND 9", name="note_importance"),
        one_of("durability", "permanent", "durable", "ephemeral", name="note_durability"),
        one_of("superseded_reason", "", "changed", "duplicate", name="note_reason"),
        CheckConstraint(
            """CASE WHEN forgotten_at IS NULL THEN text <> '' AND undo_until IS NULL
                    WHEN undo_until IS NULL THEN text = '' AND subject = '' AND event_date IS NULL
                    ELSE text <> '' END""",
            name="note_words_until_forgotten",
        ),
        CheckConstraint("superseded_by <> id", name="note_is_not_its_own_heir"),
        Index("notes_of_party", "party_id", "scope", "id"),
        Index("note_of_call", "call_key", unique=True, postgresql_where=text("call_key IS NOT NULL")),
        Index(
            "notes_in_core",
            "party_id",
            "scope",
            text("importance DESC"),
            text("id DESC"),
            postgresql_where=text(
                "superseded_by IS NULL AND forgotten_at IS NULL AND expired_at IS NULL "
                "AND authority <> 'tool'"
            ),
        ),
        Index("notes_by_time", "created_at"),
        Index("notes_by_pieces", text("name_pieces(text || ' ' || subject)"), postgresql_using="gin"),
        Index("notes_put_away", "undo_until", postgresql_where=text("undo_until IS NOT NULL")),
        Index("notes_of_party_link", "party_link_id", postgresql_where=text("party_link_id IS NOT NULL")),
    )
    id: int = field(identity())
    public_id: UUID = field(public_id())
    party_id: int = field(big(to="parties.id"))
    scope: str = field(words())
    kind: str = field(words())
    text: str = field(words())
    subject: str = field(words(default=""))
    session_id: int | None = field(big(null=True))
    from_turn: int | None = field(big(null=True))
    through_turn: int | None = field(big(null=True))
    flush_id: int | None = field(big(null=True))
    authority: str = field(words(default="person"))
    importance: int = field(small(default="5"))
    hash: bytes = field(digest())
    observed_at: datetime = field(moment())
    event_date: str | None = field(words(null=True))
    superseded_by: int | None = field(big(null=True))
    forgotten_at: datetime | None = field(moment(null=True))
    created_at: datetime = field(moment())
    durability: str = field(words(default="durable"))
    source_seqs: list[Any] = field(json(default="[]"))
    gist: list[int] = field(small_list())
    call_key: str | None = field(words(null=True))
    superseded_reason: str = field(words(default=""))
    expired_at: datetime | None = field(moment(null=True))
    undo_until: datetime | None = field(moment(null=True))
    party_link_id: int | None = field(big(null=True, to="party_links.id"))
    """Superseded because two persons became one, who both had it; comes back when they part."""


class NoteListTable(SQLModel, table=True):
    """The notes that a place was shown last, so that a number can name one; it lapses and serves once."""

    __tablename__ = "note_lists"
    __table_args__ = (one_of("purpose", "list", "forget", name="note_list_purpose"),)
    session_id: int = field(big(key=True, to="sessions.id"))
    address_id: int = field(big(key=True))
    purpose: str = field(words())
    note_ids: list[int] = field(Column(ARRAY(BigInteger), nullable=False))
    expires_at: datetime = field(moment(now=False))


class PassageTable(SQLModel, table=True):
    """A piece of a hidden message that can be found again; `number` is the order of the context."""

    __tablename__ = "passages"
    __table_args__ = (
        belongs("entry_rows", "session_id", "seq", name="passage_entry"),
        UniqueConstraint("session_id", "seq", "part", name="passage_is_indexed_once"),
        by_word("passages_by_word", "session_id"),
        Index("passages_by_time", "session_id", "at"),
    )
    session_id: int = field(big(key=True))
    number: int = field(big(key=True))
    seq: int = field(big())
    part: int = field(small())
    turn_no: int = field(big())
    author: str = field(words())
    speaker: str = field(words(default=""))
    sitting: int = field(small())
    at: datetime = field(moment(now=False))
    text: str = field(words())
    terms: int = field(small())
    vector: Any = field(found_words())
    indexed_at: datetime = field(moment())


class KnowledgeTable(SQLModel, table=True):
    """A passage of a file that an agent knows; a file without text has one empty passage."""

    __tablename__ = "knowledge"
    __table_args__ = (by_word("knowledge_by_word", "agent_id"),)
    agent_id: int = field(big(key=True, to="agents.id"))
    path: str = field(words(key=True))
    place: int = field(small(key=True))
    sha256: bytes = field(digest())
    heading: str = field(words(default=""))
    text: str = field(words())
    terms: int = field(small())
    vector: Any = field(found_words())
    indexed_at: datetime = field(moment())
    uploaded_by: str | None = field(words(null=True))
    """Null for a file of the agent's folder."""


class NoteWordsTable(SQLModel, table=True):
    """The words of a note that may be recalled; gone as soon as the note changes or is forgotten."""

    __tablename__ = "note_words"
    __table_args__ = (
        ForeignKeyConstraint(["note_id"], ["notes.id"], name="note_words_note", ondelete="CASCADE"),
        by_word("notes_by_word", "party_id"),
    )
    note_id: int = field(big(key=True))
    party_id: int = field(big())
    terms: int = field(small())
    vector: Any = field(found_words())
    indexed_at: datetime = field(moment())


class RecallWordTable(SQLModel, table=True):
    """In how many passages of a session, or of an agent's files, a word occurs; '' counts them all."""

    __tablename__ = "recall_words"
    __table_args__ = (one_of("lane", "said", "knowledge", name="recall_words_lane"),)
    lane: str = field(words(key=True))
    owner: int = field(big(key=True))
    lexeme: str = field(words(key=True))
    passages: int = field(big())
    terms: int = field(big())


class ArtifactTable(SQLModel, table=True):
    """The whole of something that the log shows by head and tail only."""

    __tablename__ = "artifacts"
    __table_args__ = (
        belongs("entry_rows", "session_id", "seq", name="artifact_entry"),
        UniqueConstraint("session_id", "seq", "sha256", name="artifact_is_stored_once"),
    )
    id: int = field(identity())
    public_id: UUID = field(public_id())
    session_id: int = field(big(to="sessions.id"))
    seq: int = field(big())
    sha256: bytes = field(digest())
    body: str = field(words())
    tokens: int = field(small())
    created_at: datetime = field(moment())


class PinTable(SQLModel, table=True):
    __tablename__ = "pins"
    __table_args__ = (belongs("entry_rows", "session_id", "seq", name="pin_entry"),)
    session_id: int = field(big(key=True))
    seq: int = field(big(key=True))
    pinned_at: datetime = field(moment())


class PruneDecisionTable(SQLModel, table=True):
    """How an old tool result, or hidden chatter, is shown from a turn on; only added to, for replays."""

    __tablename__ = "prune_decisions"
    __table_args__ = (
        belongs("entry_rows", "session_id", "seq", name="prune_entry"),
        one_of("form", "trim", "clear", "duplicate", "hide", name="prune_form"),
    )
    session_id: int = field(big(key=True))
    seq: int = field(big(key=True))
    form: str = field(words())
    turn_no: int = field(big(key=True))
    decided_at: datetime = field(moment())
    shown: dict[str, Any] | None = field(json(null=True))


class EventTable(SQLModel, table=True):
    """What screens are told, numbered without gaps in the transaction of the row it speaks of."""

    __tablename__ = "events"
    session_id: int = field(big(key=True))
    event_seq: int = field(big(key=True))
    kind: str = field(words())
    seq: int | None = field(big(null=True))
    turn_no: int | None = field(big(null=True))
    payload: dict[str, Any] = field(json())
    at: datetime = field(moment())


class DeliveryTable(SQLModel, table=True):
    """One part of an answer on its way to a person, written before it is sent."""

    __tablename__ = "deliveries"
    __table_args__ = (
        belongs("turns", "session_id", "turn_no", name="delivery_turn"),
        one_of("state", "queued", "sending", "sent", "delivered", "uncertain", "dead", name="delivery_state"),
        Index(
            "deliveries_pending",
            "channel",
            "created_at",
            postgresql_where=text("state IN ('queued', 'sending', 'sent')"),
        ),
        Index(
            "deliveries_in_doubt",
            "created_at",
            "session_id",
            "turn_no",
            "part",
            postgresql_where=text("state IN ('uncertain', 'dead')"),
        ),
    )
    session_id: int = field(big(key=True))
    turn_no: int = field(big(key=True))
    part: int = field(small(key=True))
    channel: str = field(words())
    address_id: int = field(big(to="addresses.id"))
    state: str = field(words(default="queued"))
    remote_id: str | None = field(words(null=True))
    attempt: int = field(small(default="0"))
    error: str = field(words(default=""))
    created_at: datetime = field(moment())
    delivered_at: datetime | None = field(moment(null=True))


class SpokenAnswerTable(SQLModel, table=True):
    """An answer as it is read aloud, for a day."""

    __tablename__ = "spoken_answers"
    __table_args__ = (
        belongs("turns", "session_id", "turn_no", name="spoken_turn"),
        one_of("form", "opus", "mp3", name="spoken_form"),
        one_of("state", "due", "sending", "over", name="spoken_state"),
        Index("spoken_answers_made", "created_at"),
    )
    session_id: int = field(big(key=True))
    turn_no: int = field(big(key=True))
    form: str = field(words(key=True))
    state: str = field(words(default="due"))
    body: bytes | None = field(digest(null=True))
    created_at: datetime = field(moment())


class UncertainNoticeTable(SQLModel, table=True):
    """That an answer may not have arrived, told in its chat with a button that brings it; one per turn.

    `due` is still to be sent, `sending` while a request is under way, `shown` stands in the chat, and `over`
    is not needed any more. Each new doubt about the same turn is a new round with a button of its own.
    """

    __tablename__ = "uncertain_notices"
    __table_args__ = (
        UniqueConstraint("session_id", "turn_no", name="uncertain_notice_of_turn"),
        belongs("turns", "session_id", "turn_no", name="uncertain_notice_turn"),
        one_of("state", "due", "sending", "shown", "over", name="uncertain_notice_state"),
        CheckConstraint(
            "num_nulls(chat_id, message_id) = CASE state WHEN 'shown' THEN 0 ELSE 2 END",
            name="uncertain_notice_is_somewhere",
        ),
        CheckConstraint("round > 0 AND tries BETWEEN 0 AND 9", name="uncertain_notice_tries"),
        Index("uncertain_notices_open", "due_at", postgresql_where=text("state <> 'over'")),
    )
    id: int = field(identity())
    session_id: int = field(big())
    turn_no: int = field(big())
    address_id: int = field(big(to="addresses.id"))
    state: str = field(words(default="due"))
    round: int = field(small(default="1"))
    tries: int = field(small(default="0"))
    chat_id: int | None = field(big(null=True))
    message_id: int | None = field(big(null=True))
    due_at: datetime = field(moment())
    """When it is looked at next: one that was told waits for what becomes of the answer."""
    created_at: datetime = field(moment())


class CheckpointTable(SQLModel, table=True):
    """A ledger made at an early flush, used when the summary that should follow fails."""

    __tablename__ = "checkpoints"
    __table_args__ = (
        ForeignKeyConstraint(["session_id"], ["sessions.id"], name="checkpoint_session"),
        CheckConstraint("from_turn <= through_turn", name="checkpoint_range"),
        Index("checkpoints_of_session", "session_id", "id"),
    )
    id: int = field(identity())
    session_id: int = field(big())
    parent: int | None = field(big(null=True))
    from_turn: int = field(big())
    through_turn: int = field(big())
    ledger: dict[str, Any] = field(json())
    audit: dict[str, Any] = field(json())
    tokens: int = field(small(default="0"))
    model: str = field(words(default=""))
    cost_micro: int | None = field(big(null=True))
    job_id: int | None = field(big(null=True))
    created_at: datetime = field(moment())


class JobTable(SQLModel, table=True):
    """Work to be done by a worker; one per key while it is due or running, one running per session."""

    __tablename__ = "jobs"
    __table_args__ = (
        one_of("kind", "flush", "compact", "tidy", name="job_kind"),
        one_of("state", "due", "running", "done", "dead", name="job_state"),
        Index("job_is_asked_once", "key", unique=True, postgresql_where=text("state IN ('due', 'running')")),
        Index(
            "one_running_job_per_session",
            "session_id",
            unique=True,
            postgresql_where=text("state = 'running'"),
        ),
        Index("jobs_waiting", "due_at", postgresql_where=text("state IN ('due', 'running')")),
        Index("jobs_of_session", "session_id", "id"),
        Index("jobs_dead", "id", postgresql_where=text("state = 'dead'")),
        Index(
            "jobs_dead_by_time",
            "ended_at",
            postgresql_where=text("state = 'dead' AND NOT outcome ? 'cancelled'"),
        ),
        Index("jobs_done_by_time", "ended_at", postgresql_where=text("state = 'done'")),
        Index("jobs_of_kind", "kind", "id"),
        Index("jobs_dead_by_session", "session_id", "id", postgresql_where=text("state = 'dead'")),
        {"postgresql_with": SOON_VACUUMED},
    )
    id: int = field(identity())
    kind: str = field(words())
    session_id: int = field(big(to="sessions.id"))
    key: str = field(words())
    state: str = field(words(default="due"))
    trigger: str = field(words(default="auto"))
    payload: dict[str, Any] = field(json())
    due_at: datetime = field(moment())
    attempt: int = field(small(default="0"))
    faults: int = field(small(default="0"))
    epoch: int = field(big(default="0"))
    leased_by: int | None = field(big(null=True))
    last_error: str = field(words(default=""))
    outcome: dict[str, Any] = field(json())
    created_at: datetime = field(moment())
    started_at: datetime | None = field(moment(null=True))
    ended_at: datetime | None = field(moment(null=True))
    failures: list[Any] = field(json(default="[]"))


class JobKindTable(SQLModel, table=True):
    """What an operator set for jobs of one kind; a kind without a row runs without bounds."""

    __tablename__ = "job_kinds"
    __table_args__ = (
        one_of("kind", "flush", "compact", "tidy", name="job_kind_is_known"),
        CheckConstraint("concurrency BETWEEN 1 AND 100", name="job_concurrency"),
    )
    kind: str = field(words(key=True))
    paused: bool = field(flag())
    concurrency: int | None = field(small(null=True))
    """How many of them all workers together run at once; null is no bound."""
    changed_at: datetime = field(moment())
    changed_by: str = field(words(default=""))


class WorkerTable(SQLModel, table=True):
    """A living process; a lease holds as long as its beat is fresh."""

    __tablename__ = "workers"
    id: int = field(identity())
    role: str = field(words())
    pid: int = field(big())
    beat: datetime = field(moment())
    started_at: datetime = field(moment())
    stopped_at: datetime | None = field(moment(null=True))
    health: dict[str, Any] = field(json())


class AlertTable(SQLModel, table=True):
    """Something that needs an operator: open while it is so, once for each key. Never words of people."""

    __tablename__ = "alerts"
    __table_args__ = (
        one_of(
            "kind",
            "spend_80",
            "spend_100",
            "provider_refused",
            "breaker_open",
            "dead_job",
            "uncertain_delivery",
            "disk_low",
            "handover_waiting",
            "no_worker",
            "no_backup",
            "agent_cap_80",
            "agent_cap_100",
            "window_narrowed",
            "stuck_turn",
            "test",
            "no_summaries",
            "spend_source",
            name="alert_kind",
        ),
        CheckConstraint("jsonb_typeof(detail) = 'object'", name="alert_detail_is_an_object"),
        CheckConstraint("ended_at >= opened_at", name="alert_ends_after_it_began"),
        Index("alert_is_open_once", "kind", "key", unique=True, postgresql_where=text("ended_at IS NULL")),
        Index("alerts_by_time", "opened_at", "id"),
    )
    id: int = field(identity())
    public_id: UUID = field(public_id())
    kind: str = field(words())
    key: str = field(words(default=""))
    detail: dict[str, Any] = field(json())
    opened_at: datetime = field(moment())
    true_at: datetime = field(moment())
    ended_at: datetime | None = field(moment(null=True))
    seen_at: datetime | None = field(moment(null=True))
    seen_by: str = field(words(default=""))


class AlertSendTable(SQLModel, table=True):
    """One message about an alert to one target; `sending` while the request is under way, and not longer."""

    __tablename__ = "alert_sends"
    __table_args__ = (
        UniqueConstraint("alert_id", "target", "phase", name="alert_is_sent_once"),
        one_of("state", "due", "sending", "sent", "failed", "uncertain", name="alert_send_state"),
        one_of("phase", "opened", "ended", name="alert_send_phase"),
        CheckConstraint(
            "target IN ('webhook', 'email') OR target LIKE 'telegram:%'", name="alert_send_target"
        ),
        CheckConstraint("(ended_at IS NULL) = (state IN ('due', 'sending'))", name="alert_send_ends"),
        CheckConstraint("(state = 'sending') = (sent_by IS NOT NULL)", name="alert_send_has_a_sender"),
        ForeignKeyConstraint(["alert_id"], ["alerts.id"], name="alert_send_alert", ondelete="CASCADE"),
        Index("alert_sends_waiting", "due_at", postgresql_where=text("state IN ('due', 'sending')")),
        Index("alert_sends_by_target", "target", "id"),
    )
    id: int = field(identity())
    alert_id: int = field(big())
    target: str = field(words())
    phase: str = field(words())
    send_key: UUID = field(public_id(unique=False))
    state: str = field(words(default="due"))
    attempt: int = field(small(default="0"))
    error: str = field(words(default=""))
    sent_by: int | None = field(big(null=True))
    due_at: datetime = field(moment())
    created_at: datetime = field(moment())
    ended_at: datetime | None = field(moment(null=True))


class UsageTable(SQLModel, table=True):
    """The ledger of model calls, thrown-away attempts included; only added to, partitioned by month."""

    __tablename__ = "usage"
    __table_args__ = (
        one_of("purpose", *PURPOSES, "playground", name="usage_purpose"),
        one_of("status", "done", "aborted", name="usage_status"),
        Index("usage_of_session", "session_id", "id"),
        by_time("usage_by_time", "at"),
        {"postgresql_partition_by": "RANGE (at)"},
    )
    id: int = field(Column(BigInteger, Identity(), primary_key=True))
    at: datetime = field(moment(key=True))
    session_id: int = field(big())
    party_id: int = field(big())
    turn_no: int | None = field(big(null=True))
    job_id: int | None = field(big(null=True))
    purpose: str = field(words())
    status: str = field(words(default="done"))
    model: str = field(words())
    input_tokens: int = field(big())
    output_tokens: int = field(big())
    cache_read_tokens: int = field(big())
    cache_write_tokens: int = field(big())
    known: bool = field(flag(default=True))
    cost_micro: int | None = field(big(null=True))
    request_id: str = field(words(default=""))


class ReservationTable(SQLModel, table=True):
    """Money set aside before a call and settled after it."""

    __tablename__ = "reservations"
    __table_args__ = (
        one_of("state", "held", "settled", "released", name="reservation_state"),
        CheckConstraint("amount_micro >= 0", name="reservation_amount"),
        Index("reservations_held", "created_at", postgresql_where=text("state = 'held'")),
    )
    id: int = field(identity())
    session_id: int = field(big())
    party_id: int = field(big())
    turn_no: int | None = field(big(null=True))
    job_id: int | None = field(big(null=True))
    day: date = field(Column(Date, nullable=False))
    amount_micro: int = field(big())
    settled_micro: int | None = field(big(null=True))
    state: str = field(words(default="held"))
    scopes: list[str] = field(text_list())
    created_at: datetime = field(moment())
    ended_at: datetime | None = field(moment(null=True))
    slice_id: int | None = field(big(null=True))
    """Stands for the scopes that all share: they learn of this when the slice is closed."""


class SpendSliceTable(SQLModel, table=True):
    """Money of the day that one process spends by itself; what is left goes back when it is closed."""

    __tablename__ = "spend_slices"
    __table_args__ = (
        CheckConstraint("granted_micro > 0 AND cardinality(scopes) > 0", name="slice_is_of_something"),
        CheckConstraint("(closed_at IS NULL) = (spent_micro IS NULL)", name="slice_is_counted_at_its_end"),
        Index("spend_slices_open", "id", postgresql_where=text("closed_at IS NULL")),
    )
    id: int = field(identity())
    worker_id: int = field(big())
    day: date = field(Column(Date, nullable=False))
    scopes: list[str] = field(text_list())
    granted_micro: int = field(big())
    spent_micro: int | None = field(big(null=True))
    after_reservation: int = field(big())
    taken_at: datetime = field(moment())
    closed_at: datetime | None = field(moment(null=True))


class SpendDayTable(SQLModel, table=True):
    """What a scope (`total`, `party:7`, `session:9`) spent and has reserved on a day."""

    __tablename__ = "spend_days"
    __table_args__ = (
        CheckConstraint("reserved_micro >= 0 AND spent_micro >= 0", name="spend_is_not_negative"),
        Index("spend_days_near", "day", postgresql_where=text("warned_at IS NOT NULL")),
        Index("spend_days_by_day", "day"),
    )
    scope: str = field(words(key=True))
    day: date = field(Column(Date, primary_key=True))
    reserved_micro: int = field(big(default="0"))
    spent_micro: int = field(big(default="0"))
    warned_at: datetime | None = field(moment(null=True))


class HourlyStatsTable(SQLModel, table=True):
    """What was counted of one hour, by `dashboard/hourly_stats.py`; numbers of nobody in particular."""

    __tablename__ = "hourly_stats"
    __table_args__ = (CheckConstraint("new_today BETWEEN 0 AND people", name="hour_counts_people_once"),)
    hour: datetime = field(moment(key=True, now=False))
    zone: str = field(words())
    """Whose hours and days these are: another zone counts all of them once more."""
    counted_at: datetime = field(moment())
    messages: int = field(big(default="0"))
    people: int = field(big(default="0"))
    new_today: int = field(big(default="0"))
    """Of them, whoever wrote for the first time of that day: a day's people are the sum of its hours."""
    answers: int = field(big(default="0"))
    errors: int = field(big(default="0"))
    first_tokens: list[int] = field(small_list())
    """How many answers began after how long, by `core/ops/latency.py`; empty where none did."""
    calls: int = field(big(default="0"))
    unknown_calls: int = field(big(default="0"))
    cost_micro: int = field(big(default="0"))
    input_tokens: int = field(big(default="0"))
    cache_read_tokens: int = field(big(default="0"))
    cache_write_tokens: int = field(big(default="0"))
    output_tokens: int = field(big(default="0"))
    summaries: int = field(big(default="0"))
    handovers: int = field(big(default="0"))
    jobs: dict[str, Any] = field(json())
    """By kind how many were done and how many failed."""


class TurnContextAuditTable(SQLModel, table=True):
    """What one model call of a turn was given, and what was done to make it fit; partitioned by month.

    Whoever is in no hurry reads and writes the view `turn_context_audit`. A row is in its long form, as the
    view has it, or in the short one of an answer: then the four columns that are JSON are null.
    """

    __tablename__ = "audit_rows"
    __table_args__ = (
        Index("turn_context_audit_of_session", "session_id", "turn_id", "id"),
        {"postgresql_partition_by": "RANGE (created_at)"},
    )
    id: int = field(Column(BigInteger, Identity(), primary_key=True))
    created_at: datetime = field(moment(key=True))
    session_id: int = field(big())
    turn_id: int = field(big())
    model_alias: str = field(words())
    model_context_limit: int = field(big())
    input_budget: int = field(big())
    hard_limit: int = field(big())
    estimated_input_tokens_before: int = field(big())
    estimated_input_tokens_after_summary: int = field(big())
    estimated_input_tokens_after_prune: int = field(big())
    reported_input_tokens: int | None = field(big(null=True))
    context_tokens: int = field(big())
    summary_triggered: bool = field(flag())
    prune_triggered: bool = field(flag())
    overflow_rejected: bool = field(flag())
    parts: dict[str, Any] | None = field(json(null=True))
    part_hashes: list[Any] | None = field(json(null=True))
    entry_from: int = field(big(default="0"))
    entry_through: int = field(big(default="0"))
    base_turn: int = field(big(default="0"))
    head: int | None = field(big(null=True))
    prune_seqs: list[Any] | None = field(json(null=True))
    renderer_version: int = field(small(default="1"))
    recipe: dict[str, Any] | None = field(json(null=True))
    model_ms: int | None = field(big(null=True))
    """How long the turn's calls of its model took together; null where nobody measured."""
    hashes: bytes | None = field(digest(null=True))
    """The keys of the prompt's parts, 32 bytes each, one behind the other."""
    plan: str | None = field(words(null=True))
    """JSON: of the recipe what does not follow from other columns; null after forgetting."""
    system_tokens: int | None = field(small(null=True))
    memory_tokens: int | None = field(small(null=True))
    summary_tokens: int | None = field(small(null=True))
    history_tokens: int | None = field(small(null=True))
    tools_tokens: int | None = field(small(null=True))


class PromptPartTable(SQLModel, table=True):
    """System text, tool schemas and notes as they were sent, stored once by content."""

    __tablename__ = "prompt_parts"
    sha256: bytes = field(digest(key=True))
    body: str = field(words())
    created_at: datetime = field(moment())


class AttachmentTable(SQLModel, table=True):
    __tablename__ = "attachments"
    __table_args__ = (
        CheckConstraint("size <= 20971520", name="attachment_is_at_most_20_mib"),
        one_of("state", "waiting", "stored", "refused", name="attachment_state"),
        UniqueConstraint("session_id", "arrived_sha256", name="attachment_arrives_once"),
        CheckConstraint(
            "arrived_sha256 IS NULL OR mime LIKE 'audio/%' OR (words IS NULL) = (width IS NOT NULL)",
            name="attachment_is_seen_or_read",
        ),
    )
    id: int = field(identity())
    public_id: UUID = field(public_id())
    session_id: int = field(big(to="sessions.id"))
    sha256: bytes = field(digest())
    mime: str = field(words())
    size: int = field(big())
    state: str = field(words(default="waiting"))
    body: bytes | None = field(digest(null=True))
    created_at: datetime = field(moment())
    name: str = field(words(default=""))
    description: str = field(words(default=""))
    arrived_sha256: bytes | None = field(digest(null=True))
    width: int | None = field(small(null=True))
    height: int | None = field(small(null=True))
    words: str | None = field(words(null=True))


class TelegramUpdateTable(SQLModel, table=True):
    """The inbox: every raw update, before it is acknowledged. Unique over all time, so not partitioned."""

    __tablename__ = "telegram_updates"
    __table_args__ = (
        Index("telegram_updates_new", "bot_id", "update_id", postgresql_where=text("handled_at IS NULL")),
    )
    bot_id: int = field(big(key=True))
    update_id: int = field(big(key=True))
    body: dict[str, Any] = field(json(default=None))
    received_at: datetime = field(moment())
    handled_at: datetime | None = field(moment(null=True))
    error: str = field(words(default=""))


class LeaseTable(SQLModel, table=True):
    """Who may do what only one process may do, such as polling a bot; it lapses with its holder's beat."""

    __tablename__ = "leases"
    name: str = field(words(key=True))
    leased_by: int | None = field(big(null=True, to="workers.id"))
    epoch: int = field(big(default="0"))
    taken_at: datetime = field(moment())


class TelegramAccessTable(SQLModel, table=True):
    """Who may talk with a bot: a person, or a group by its negative id."""

    __tablename__ = "telegram_access"
    __table_args__ = (
        one_of("state", "pending", "allowed", "refused", name="telegram_access_state"),
        CheckConstraint("(decided_at IS NULL) = (state = 'pending')", name="telegram_access_decided"),
        Index("telegram_access_code", "code", unique=True, postgresql_where=text("state = 'pending'")),
    )
    bot_id: int = field(big(key=True, to="telegram_bots.bot_id"))
    chat_id: int = field(big(key=True))
    state: str = field(words(default="pending"))
    owner: bool = field(flag())
    name: str = field(words(default=""))
    username: str = field(words(default=""))
    code: str | None = field(words(null=True))
    asked_at: datetime = field(moment())
    told_at: datetime | None = field(moment(null=True))
    decided_at: datetime | None = field(moment(null=True))
    decided_by: str = field(words(default=""))


class TelegramMessageTable(SQLModel, table=True):
    """Which of our entries or deliveries a message of a chat is: for edits, replies, pins and reactions."""

    __tablename__ = "telegram_messages"
    __table_args__ = (
        ForeignKeyConstraint(["session_id"], ["sessions.id"], name="telegram_message_session"),
        CheckConstraint("(seq IS NULL) = (part IS NOT NULL)", name="telegram_message_in_or_out"),
        Index("telegram_messages_of_turn", "session_id", "turn_no"),
    )
    bot_id: int = field(big(key=True))
    chat_id: int = field(big(key=True))
    message_id: int = field(big(key=True))
    session_id: int = field(big())
    seq: int | None = field(big(null=True))
    turn_no: int = field(big())
    part: int | None = field(small(null=True))
    at: datetime = field(moment())


class OneTimeCodeTable(SQLModel, table=True):
    """A code that does one thing once: makes a bot's owner, joins two channels, opens an event stream."""

    __tablename__ = "one_time_codes"
    __table_args__ = (
        one_of("purpose", "telegram_owner", "link", "stream", name="one_time_code_purpose"),
        Index("link_codes_of_party", "party_id", "created_at", postgresql_where=text("purpose = 'link'")),
    )
    code_hash: bytes = field(digest(key=True))
    purpose: str = field(words())
    bot_id: int | None = field(big(null=True, to="telegram_bots.bot_id"))
    party_id: int | None = field(big(null=True, to="parties.id"))
    created_at: datetime = field(moment())
    expires_at: datetime = field(moment(now=False))
    used_at: datetime | None = field(moment(null=True))
    address_id: int | None = field(big(null=True, to="addresses.id"))
    wishes: dict[str, Any] | None = field(json(null=True))


class PartyLinkTable(SQLModel, table=True):
    """Two persons who became one: whose code was typed by whom, and which session waits for them to part."""

    __tablename__ = "party_links"
    __table_args__ = (
        CheckConstraint(
            "kept_party_id <> joined_party_id AND kept_session_id <> archived_session_id",
            name="party_link_joins_two",
        ),
        Index(
            "party_is_joined_once", "joined_party_id", unique=True,
            postgresql_where=text("unlinked_at IS NULL"),
        ),
        Index(
            "session_is_archived_once", "archived_session_id", unique=True,
            postgresql_where=text("unlinked_at IS NULL"),
        ),
        Index("party_links_of_kept", "kept_party_id"),
    )  # fmt: skip
    id: int = field(identity())
    kept_party_id: int = field(big(to="parties.id"))
    joined_party_id: int = field(big(to="parties.id"))
    kept_session_id: int = field(big(to="sessions.id"))
    archived_session_id: int = field(big(to="sessions.id"))
    day: date = field(Column(Date, nullable=False))
    carried_micro: int = field(big(default="0"))
    """What the one who joined had spent that day; it counts for both from then on."""
    linked_at: datetime = field(moment())
    unlinked_at: datetime | None = field(moment(null=True))


class LinkGuessTable(SQLModel, table=True):
    """Somebody typed a code that joins nothing; kept for an hour."""

    __tablename__ = "link_guesses"
    __table_args__ = (Index("link_guesses_by_time", "at"),)
    id: int = field(identity())
    party_id: int = field(big(to="parties.id"))
    session_id: int = field(big(to="sessions.id"))
    at: datetime = field(moment())


class SamplePlayTable(SQLModel, table=True):
    """A conversation of ours that the demo plays into a person's own one, message by message."""

    __tablename__ = "sample_plays"
    __table_args__ = (
        CheckConstraint("played BETWEEN 0 AND total", name="sample_is_played_to_its_end"),
        Index("sample_plays_due", "started_at", postgresql_where=text("played < total")),
    )
    session_id: int = field(big(key=True, to="sessions.id"))
    address_id: int = field(big(to="addresses.id"))
    begun_turn: int = field(big())
    played: int = field(small(default="0"))
    total: int = field(small())
    started_at: datetime = field(moment())


class ReminderTable(SQLModel, table=True):
    """What a person wants to be told at a time; it begins a turn of its own when that has come.

    `tell_at` is `due_at` unless that lies in quiet hours. Until it is told, it belongs to its address,
    whatever session that leads to by then.
    """

    __tablename__ = "reminders"
    __table_args__ = (
        one_of("state", "pending", "claimed", "done", "cancelled", "failed", name="reminder_state"),
        CheckConstraint("char_length(text) BETWEEN 1 AND 500", name="reminder_text_is_short"),
        CheckConstraint(
            "state NOT IN ('claimed', 'done') OR turn_no IS NOT NULL", name="reminder_has_its_turn"
        ),
        CheckConstraint(
            "(ended_at IS NULL) = (state IN ('pending', 'claimed'))", name="reminder_end_has_a_time"
        ),
        CheckConstraint(
            "repeat ~ '^((day|week|month)/[0-9]{1,2}/[a-z0-9,]*/[0-2][0-9]:[0-5][0-9])?$'",
            name="reminder_repeat_is_a_rule",
        ),
        CheckConstraint(
            "paused_at IS NULL OR (state = 'pending' AND repeat <> '')", name="reminder_pauses_while_it_waits"
        ),
        Index("reminders_due", "tell_at", postgresql_where=text("state = 'pending'")),
        Index("reminders_claimed", "id", postgresql_where=text("state = 'claimed'")),
        Index("reminders_of_party", "party_id", "due_at"),
        Index(
            "reminders_by_turn", "session_id", "turn_no", unique=True,
            postgresql_where=text("turn_no IS NOT NULL"),
        ),
    )  # fmt: skip
    id: int = field(identity())
    public_id: UUID = field(public_id())
    key: str = field(words(unique=True))
    party_id: int = field(big(to="parties.id"))
    session_id: int = field(big(to="sessions.id"))
    address_id: int = field(big(to="addresses.id"))
    text: str = field(words())
    due_at: datetime = field(moment(now=False))
    tell_at: datetime = field(moment(now=False))
    state: str = field(words(default="pending"))
    turn_no: int | None = field(big(null=True))
    reason: str = field(words(default=""))
    created_at: datetime = field(moment())
    claimed_at: datetime | None = field(moment(null=True))
    ended_at: datetime | None = field(moment(null=True))
    repeat: str = field(words(default=""))
    """When it comes again; each time is a row of its own, added when the one before begins its turn."""
    paused_at: datetime | None = field(moment(null=True))


class HandoverTable(SQLModel, table=True):
    """A conversation that waits for an operator, is with one, or was; `told` is the word that it is over.

    Only a channel that sends messages needs `told`; on the web the stored notice is on the screen.
    """

    __tablename__ = "handovers"
    __table_args__ = (
        one_of("state", "waiting", "human", "ended", name="handover_state"),
        one_of("asked_by", "person", "assistant", "operator", name="handover_asker"),
        CheckConstraint("char_length(reason) <= 500", name="handover_reason_is_short"),
        CheckConstraint(
            "state <> 'human' OR operator_id IS NOT NULL AND taken_at IS NOT NULL",
            name="handover_has_its_operator",
        ),
        CheckConstraint("(ended_at IS NULL) = (state <> 'ended')", name="handover_end_has_a_time"),
        CheckConstraint(
            "ended_by IN ('', 'operator', 'person', 'unanswered', 'silent', 'off', 'resolved') "
            "AND (ended_by = '') = (state <> 'ended')",
            name="handover_end_has_a_reason",
        ),
        CheckConstraint(
            "told IN ('nothing', 'queued', 'sending', 'told', 'uncertain', 'dead') "
            "AND (told = 'nothing' OR state = 'ended')",
            name="handover_told",
        ),
        CheckConstraint(
            "(snoozed_at IS NULL) = (snoozed_until IS NULL) AND snoozed_at < snoozed_until",
            name="handover_snooze_has_both_ends",
        ),
        CheckConstraint("cardinality(labels) <= 10", name="handover_labels_are_few"),
        CheckConstraint(
            "rating BETWEEN 1 AND 5 AND ended_by = 'resolved' AND rated_at IS NOT NULL "
            "OR rating IS NULL AND rated_at IS NULL",
            name="handover_rating",
        ),
        Index("handovers_resolved", "ended_at", postgresql_where=text("ended_by = 'resolved'")),
        Index("handover_is_open_once", "session_id", unique=True, postgresql_where=text("ended_at IS NULL")),
        Index("handovers_by_session", "session_id", "asked_at"),
        Index("handovers_by_time", "asked_at"),
        Index("handovers_untold", "id", postgresql_where=text("told IN ('queued', 'sending')")),
    )
    id: int = field(identity())
    session_id: int = field(big(to="sessions.id"))
    address_id: int = field(big(to="addresses.id"))
    state: str = field(words(default="waiting"))
    asked_by: str = field(words())
    reason: str = field(words(default=""))
    call_key: str | None = field(words(null=True, unique=True))
    operator_id: int | None = field(big(null=True, to="operators.id"))
    operator_name: str = field(words(default=""))
    asked_at: datetime = field(moment())
    taken_at: datetime | None = field(moment(null=True))
    ended_at: datetime | None = field(moment(null=True))
    ended_by: str = field(words(default=""))
    told: str = field(words(default="nothing"))
    version: int = field(big(default="0"))
    """Of what operators change beside the words: who looked before somebody else's change is refused."""
    snoozed_at: datetime | None = field(moment(null=True))
    snoozed_until: datetime | None = field(moment(null=True))
    labels: list[str] = field(text_list(default="'{}'::text[]"))
    rating: int | None = field(small(null=True))
    rated_at: datetime | None = field(moment(null=True))


class PrivateNoteTable(SQLModel, table=True):
    """What operators write for each other beside a conversation: no model and no person ever reads it."""

    __tablename__ = "private_notes"
    __table_args__ = (
        UniqueConstraint("session_id", "cid", name="private_note_is_stored_once"),
        CheckConstraint("char_length(body) BETWEEN 1 AND 4000", name="private_note_is_short"),
    )
    id: int = field(identity())
    public_id: UUID = field(public_id())
    session_id: int = field(big(to="sessions.id"))
    operator_id: int | None = field(big(null=True, to="operators.id"))
    operator_name: str = field(words())
    cid: str = field(words())
    body: str = field(words())
    created_at: datetime = field(moment())


class CannedReplyTable(SQLModel, table=True):
    """Words that operators send often, under a short name; the page fills in `{{name}}` and the like."""

    __tablename__ = "canned_replies"
    __table_args__ = (
        CheckConstraint("name ~ '^[a-z0-9][a-z0-9_-]{0,39}$'", name="canned_reply_name"),
        CheckConstraint("char_length(body) BETWEEN 1 AND 4000", name="canned_reply_is_short"),
    )
    name: str = field(words(key=True))
    body: str = field(words())
    version: int = field(big(default="1"))
    changed_by: str = field(words())
    changed_at: datetime = field(moment())


class FeedbackTable(SQLModel, table=True):
    """What a person thought of an answer; the newest opinion counts."""

    __tablename__ = "feedback"
    __table_args__ = (
        belongs("turns", "session_id", "turn_no", name="feedback_turn"),
        one_of("opinion", "good", "bad", name="feedback_opinion"),
    )
    session_id: int = field(big(key=True))
    turn_no: int = field(big(key=True))
    opinion: str | None = field(words(null=True))
    source: str = field(words(default=""))
    at: datetime = field(moment())
    words: str = field(words(default=""))
    cids: list[str] = field(text_list(default="'{}'::text[]"))


class ErasureTable(SQLModel, table=True):
    """The log of what was erased, without content; `work` says what is left to do and goes with its end.

    `about` holds numbers, random ids and hashes of them: what to erase again in a restored backup.
    """

    __tablename__ = "erasures"
    __table_args__ = (
        one_of("scope", "everything", "messages", "retention", "notes", name="erasure_scope"),
        one_of("state", "running", "done", name="erasure_state"),
        CheckConstraint("(state = 'done') = (work IS NULL)", name="erasure_keeps_no_ids"),
        CheckConstraint("(state = 'done') = (finished_at IS NOT NULL)", name="erasure_end_has_a_time"),
        CheckConstraint("about IS NULL OR jsonb_typeof(about) = 'object'", name="erasure_is_about_ids"),
        Index("erasures_running", "id", postgresql_where=text("state = 'running'")),
    )
    id: int = field(identity())
    at: datetime = field(moment())
    party_hash: bytes = field(digest())
    actor: str = field(words())
    scope: str = field(words())
    state: str = field(words(default="running"))
    step: int = field(small(default="0"))
    counts: dict[str, Any] = field(json())
    work: dict[str, Any] | None = field(json(null=True))
    finished_at: datetime | None = field(moment(null=True))
    about: dict[str, Any] | None = field(json(null=True))


class ErasureWishTable(SQLModel, table=True):
    """Somebody asked what `/forget everything` would take, and may say yes for a while."""

    __tablename__ = "erasure_wishes"
    session_id: int = field(big(key=True, to="sessions.id"))
    asked_at: datetime = field(moment())
