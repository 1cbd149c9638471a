"""Every table, with the constraints that carry the promise; `migrations/` is compared with this file.

Hot statements are written as SQL in the stores beside this file: the tables here are their contract.
How long rows are kept stands in `retention.py`, what forgetting does with them in `erasure_map.py`.
"""

from __future__ import annotations

from datetime import date, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    DDL,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Date,
    Double,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
    event,
    text,
)
from sqlalchemy.dialects.postgresql import TSVECTOR
from sqlmodel import Field, SQLModel

from shared.adapters.postgres.db.columns import (
    big,
    digest,
    flag,
    identity,
    json,
    moment,
    public_id,
    small,
    words,
)
from shared.adapters.postgres.db.sort_keys import CACHE_PCT, CONTEXT_PCT, KNOWN_COST, READ_TOKENS


def field(column: Any) -> Any:
    return Field(default=None, sa_column=column)


def belongs(table: str, *columns: str, name: str) -> ForeignKeyConstraint:
    return ForeignKeyConstraint(columns, [f"{table}.{column}" for column in columns], name=name)


def text_list(*, default: str | None = None) -> Any:
    return Column(ARRAY(Text), nullable=False, server_default=text(default) if default else None)


def small_list() -> Any:
    return Column(ARRAY(Integer), nullable=False, server_default=text("'{}'"))


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


def one_of(column: str, *values: str, name: str) -> CheckConstraint:
    listed = ", ".join(f"'{value}'" for value in values)
    return CheckConstraint(f"{column} IN ({listed})", name=name)


class Deployment(SQLModel, table=True):
    """One row: what is true of this installation. A restore and a promoted standby raise `log_epoch`."""

    __tablename__ = "deployment"
    __table_args__ = (CheckConstraint("id = 1", name="deployment_is_one_row"),)
    id: int = field(small(key=True, default="1"))
    log_epoch: int = field(big(default="1"))
    created_at: datetime = field(moment())
    timeline: str = field(words(default=""))
    """Of the server that wrote last; empty where it does not tell."""


class Agent(SQLModel, table=True):
    __tablename__ = "agents"
    id: int = field(identity())
    name: str = field(words(unique=True))
    config: dict[str, Any] = field(json())
    version: int = field(big(default="1"))
    created_at: datetime = field(moment())
    updated_at: datetime = field(moment())


class Party(SQLModel, table=True):
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


class Site(SQLModel, table=True):
    """Where a widget may live, and for whom."""

    __tablename__ = "sites"
    __table_args__ = (one_of("audience", "personal", "public", name="site_audience"),)
    name: str = field(words(key=True))
    audience: str = field(words(default="personal"))
    allowed_origins: list[str] = field(text_list(default="'{}'::text[]"))
    agent_id: int = field(big(to="agents.id"))
    created_at: datetime = field(moment())
    config: dict[str, Any] = field(json())
    """Checked by `shared/config/sites.py`."""
    version: int = field(big(default="1"))


class SiteSecret(SQLModel, table=True):
    """Signs who a site's people are; sealed, and two at once so that one can replace the other."""

    __tablename__ = "site_secrets"
    __table_args__ = (
        CheckConstraint("slot IN (1, 2)", name="site_has_two_secrets"),
        ForeignKeyConstraint(["site"], ["sites.name"], name="site_secret_site"),
    )
    site: str = field(words(key=True))
    slot: int = field(small(key=True))
    secret_id: str = field(words())
    key_id: str = field(words())
    sealed: bytes = field(digest())
    created_at: datetime = field(moment())


class Session(SQLModel, table=True):
    """The never-ending conversation. Its row is the lock and the source of every gap-free number.

    No index is over what a turn changes, nor has it in its condition: else each index would hear of each
    step of a turn. What the dashboard orders by is copied to `session_list`; who waits, `turns` know.
    """

    __tablename__ = "sessions"
    __table_args__ = (
        CheckConstraint("base_turn <= answered_turn", name="session_hides_only_ended_turns"),
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


class SessionTotals(SQLModel, table=True):
    """Lifetime sums, written with each turn; never the same thing as "context now"."""

    __tablename__ = "session_totals"
    __table_args__ = (
        ForeignKeyConstraint(["session_id"], ["sessions.id"], name="totals_session"),
        Index("totals_by_compactions", "compaction_count", "session_id"),
        {"postgresql_with": {"fillfactor": "70", **SOON_VACUUMED}},
    )
    session_id: int = field(big(key=True))
    total_tokens: int = field(big(default="0"))
    """All that was read, cached or not, and all that was said: the sum of the four, see `TOTALS`."""
    total_tokens_estimate: int = field(big(default="0"))
    input_tokens: int = field(big(default="0"))
    output_tokens: int = field(big(default="0"))
    cache_read_tokens: int = field(big(default="0"))
    cache_write_tokens: int = field(big(default="0"))
    cost_micro: int = field(big(default="0"))
    cost_unknown_calls: int = field(big(default="0"))
    compaction_count: int = field(big(default="0"))


class ListedSession(SQLModel, table=True):
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


class SessionSpend(SQLModel, table=True):
    """What a conversation spent for one purpose with one model, added up with each row of the ledger."""

    __tablename__ = "session_spend"
    __table_args__ = (
        ForeignKeyConstraint(["session_id"], ["sessions.id"], name="spend_session"),
        one_of("purpose", "chat", "flush", "compact", "repair", "delegate", "tidy", name="spend_purpose"),
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


class Address(SQLModel, table=True):
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


class Visitor(SQLModel, table=True):
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


class RecoveryCode(SQLModel, table=True):
    """Brings an anonymous conversation to another browser; each place has one, as a hash."""

    __tablename__ = "recovery_codes"
    address_id: int = field(big(key=True, to="addresses.id"))
    code_hash: bytes = field(digest(unique=True))
    created_at: datetime = field(moment())
    expires_at: datetime = field(moment(now=False))


class Entry(SQLModel, table=True):
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


class Turn(SQLModel, table=True):
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


class TurnEntry(SQLModel, table=True):
    """Which turn an entry belongs to, and at which step; the order of the context."""

    __tablename__ = "turn_entries"
    __table_args__ = (UniqueConstraint("session_id", "turn_no", "step", name="turn_step_is_one_entry"),)
    session_id: int = field(big(key=True))
    seq: int = field(big(key=True))
    turn_no: int = field(big())
    step: int = field(small())


class TurnStep(SQLModel, table=True):
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


class Link(SQLModel, table=True):
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


class Flush(SQLModel, table=True):
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


class Note(SQLModel, table=True):
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


class NoteList(SQLModel, table=True):
    """The notes that a place was shown last, so that a number can name one; it lapses and serves once."""

    __tablename__ = "note_lists"
    __table_args__ = (one_of("purpose", "list", "forget", name="note_list_purpose"),)
    session_id: int = field(big(key=True, to="sessions.id"))
    address_id: int = field(big(key=True))
    purpose: str = field(words())
    note_ids: list[int] = field(Column(ARRAY(BigInteger), nullable=False))
    expires_at: datetime = field(moment(now=False))


class Passage(SQLModel, table=True):
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


class Knowledge(SQLModel, table=True):
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


class NoteWords(SQLModel, table=True):
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


class RecallWord(SQLModel, table=True):
    """In how many passages of a session, or of an agent's files, a word occurs; '' counts them all."""

    __tablename__ = "recall_words"
    __table_args__ = (one_of("lane", "said", "knowledge", name="recall_words_lane"),)
    lane: str = field(words(key=True))
    owner: int = field(big(key=True))
    lexeme: str = field(words(key=True))
    passages: int = field(big())
    terms: int = field(big())


class Artifact(SQLModel, table=True):
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


class Pin(SQLModel, table=True):
    __tablename__ = "pins"
    __table_args__ = (belongs("entry_rows", "session_id", "seq", name="pin_entry"),)
    session_id: int = field(big(key=True))
    seq: int = field(big(key=True))
    pinned_at: datetime = field(moment())


class PruneDecision(SQLModel, table=True):
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


class Event(SQLModel, table=True):
    """What screens are told, numbered without gaps in the transaction of the row it speaks of."""

    __tablename__ = "events"
    session_id: int = field(big(key=True))
    event_seq: int = field(big(key=True))
    kind: str = field(words())
    seq: int | None = field(big(null=True))
    turn_no: int | None = field(big(null=True))
    payload: dict[str, Any] = field(json())
    at: datetime = field(moment())


class Delivery(SQLModel, table=True):
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


class UncertainNotice(SQLModel, table=True):
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


class Checkpoint(SQLModel, table=True):
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


class Job(SQLModel, table=True):
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


class Worker(SQLModel, table=True):
    """A living process; a lease holds as long as its beat is fresh."""

    __tablename__ = "workers"
    id: int = field(identity())
    role: str = field(words())
    pid: int = field(big())
    beat: datetime = field(moment())
    started_at: datetime = field(moment())
    stopped_at: datetime | None = field(moment(null=True))
    health: dict[str, Any] = field(json())


class Alert(SQLModel, table=True):
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


class AlertSend(SQLModel, table=True):
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


class Usage(SQLModel, table=True):
    """The ledger of model calls, thrown-away attempts included; only added to, partitioned by month."""

    __tablename__ = "usage"
    __table_args__ = (
        one_of("purpose", "chat", "flush", "compact", "repair", "delegate", "tidy", name="usage_purpose"),
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


class Reservation(SQLModel, table=True):
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


class SpendSlice(SQLModel, table=True):
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


class SpendDay(SQLModel, table=True):
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


class TurnContextAudit(SQLModel, table=True):
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
    hashes: bytes | None = field(Column(LargeBinary, nullable=True))
    """The keys of the prompt's parts, 32 bytes each, one behind the other."""
    plan: str | None = field(words(null=True))
    """JSON: of the recipe what does not follow from other columns; null after forgetting."""
    system_tokens: int | None = field(small(null=True))
    memory_tokens: int | None = field(small(null=True))
    summary_tokens: int | None = field(small(null=True))
    history_tokens: int | None = field(small(null=True))
    tools_tokens: int | None = field(small(null=True))


class PromptPart(SQLModel, table=True):
    """System text, tool schemas and notes as they were sent, stored once by content."""

    __tablename__ = "prompt_parts"
    sha256: bytes = field(digest(key=True))
    body: str = field(words())
    created_at: datetime = field(moment())


class Attachment(SQLModel, table=True):
    __tablename__ = "attachments"
    __table_args__ = (
        CheckConstraint("size <= 20971520", name="attachment_is_at_most_20_mib"),
        one_of("state", "waiting", "stored", "refused", name="attachment_state"),
        UniqueConstraint("session_id", "arrived_sha256", name="attachment_arrives_once"),
        CheckConstraint(
            "arrived_sha256 IS NULL OR (words IS NULL) = (width IS NOT NULL)",
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


class TelegramUpdate(SQLModel, table=True):
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


class Lease(SQLModel, table=True):
    """Who may do what only one process may do, such as polling a bot; it lapses with its holder's beat."""

    __tablename__ = "leases"
    name: str = field(words(key=True))
    leased_by: int | None = field(big(null=True, to="workers.id"))
    epoch: int = field(big(default="0"))
    taken_at: datetime = field(moment())


class TelegramBot(SQLModel, table=True):
    """A bot of this deployment, and what ails it."""

    __tablename__ = "telegram_bots"
    __table_args__ = (
        one_of("audience", "personal", "public", name="telegram_bot_audience"),
        one_of("access", "pairing", "allowlist", "open", name="telegram_bot_access"),
        one_of("mode", "polling", "webhook", name="telegram_bot_mode"),
    )
    bot_id: int = field(big(key=True))
    username: str = field(words(default=""))
    agent_id: int = field(big(to="agents.id"))
    audience: str = field(words(default="personal"))
    access: str = field(words(default="pairing"))
    mode: str = field(words(default="polling"))
    problem: str = field(words(default=""))
    heard_at: datetime | None = field(moment(null=True))
    created_at: datetime = field(moment())


class TelegramAccess(SQLModel, table=True):
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


class TelegramMessage(SQLModel, table=True):
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


class OneTimeCode(SQLModel, table=True):
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


class PartyLink(SQLModel, table=True):
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


class LinkGuess(SQLModel, table=True):
    """Somebody typed a code that joins nothing; kept for an hour."""

    __tablename__ = "link_guesses"
    __table_args__ = (Index("link_guesses_by_time", "at"),)
    id: int = field(identity())
    party_id: int = field(big(to="parties.id"))
    session_id: int = field(big(to="sessions.id"))
    at: datetime = field(moment())


class Reminder(SQLModel, table=True):
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


class Handover(SQLModel, table=True):
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
            "ended_by IN ('', 'operator', 'person', 'unanswered', 'silent', 'off') "
            "AND (ended_by = '') = (state <> 'ended')",
            name="handover_end_has_a_reason",
        ),
        CheckConstraint(
            "told IN ('nothing', 'queued', 'sending', 'told', 'uncertain', 'dead') "
            "AND (told = 'nothing' OR state = 'ended')",
            name="handover_told",
        ),
        Index("handover_is_open_once", "session_id", unique=True, postgresql_where=text("ended_at IS NULL")),
        Index("handovers_by_session", "session_id", "asked_at"),
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


class Feedback(SQLModel, table=True):
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


class Operator(SQLModel, table=True):
    """Who runs the program; one of an identity provider has `issuer` and `subject` and no password."""

    __tablename__ = "operators"
    __table_args__ = (
        one_of("role", "viewer", "operator", "admin", name="operator_role"),
        CheckConstraint("(issuer IS NULL) = (subject IS NULL)", name="operator_of_a_provider"),
        CheckConstraint("issuer IS NULL OR password_hash IS NULL", name="operator_has_one_way_in"),
        UniqueConstraint("issuer", "subject", name="operator_identity"),
    )
    id: int = field(identity())
    name: str = field(words(unique=True))
    role: str = field(words(default="admin"))
    password_hash: str | None = field(words(null=True))
    created_at: datetime = field(moment())
    disabled_at: datetime | None = field(moment(null=True))
    public_id: UUID = field(public_id())
    version: int = field(small(default="1"))
    issuer: str | None = field(words(null=True))
    subject: str | None = field(words(null=True))
    last_login_at: datetime | None = field(moment(null=True))


class OperatorSession(SQLModel, table=True):
    """A browser in which an operator is logged in."""

    __tablename__ = "operator_sessions"
    __table_args__ = (one_of("how", "link", "password", "provider", name="operator_session_how"),)
    token_hash: bytes = field(digest(key=True))
    operator_id: int = field(big(to="operators.id"))
    created_at: datetime = field(moment())
    seen_at: datetime = field(moment())
    expires_at: datetime = field(moment(now=False))
    public_id: UUID = field(public_id())
    how: str = field(words(default="link"))
    source: str = field(words(default=""))
    browser: str = field(words(default=""))


class LoginTries(SQLModel, table=True):
    """Failed logins by the hash of an account, an address, or both; whoever asks too often waits longer."""

    __tablename__ = "login_tries"
    __table_args__ = (
        CheckConstraint("failures >= 0", name="login_tries_count"),
        CheckConstraint("octet_length(key) = 32", name="login_tries_are_of_hashes"),
    )
    key: bytes = field(digest(key=True))
    operator_id: int | None = field(big(null=True, to="operators.id"))
    failures: int = field(small(default="0"))
    last_at: datetime = field(moment())
    refused_until: datetime | None = field(moment(null=True))


class LoginPlace(SQLModel, table=True):
    """Where an operator has logged in, by a keyed hash of both: there no stranger's tries count."""

    __tablename__ = "login_places"
    __table_args__ = (
        CheckConstraint("octet_length(key) = 32", name="login_places_are_hashes"),
        Index("login_places_of_operator", "operator_id", "at"),
    )
    key: bytes = field(digest(key=True))
    operator_id: int = field(big(to="operators.id"))
    at: datetime = field(moment())


class LoginLink(SQLModel, table=True):
    """A link that logs an operator in once."""

    __tablename__ = "login_links"
    token_hash: bytes = field(digest(key=True))
    operator_id: int = field(big(to="operators.id"))
    created_at: datetime = field(moment())
    expires_at: datetime = field(moment(now=False))
    used_at: datetime | None = field(moment(null=True))


class OperatorFactor(SQLModel, table=True):
    """An operator's authenticator app: its key, sealed, and hashes of the codes for when it is lost."""

    __tablename__ = "operator_factors"
    __table_args__ = (
        CheckConstraint("confirmed_at IS NOT NULL OR recovery = '{}'", name="factor_opens_when_confirmed"),
    )
    operator_id: int = field(big(key=True, to="operators.id"))
    key_id: str = field(words())
    sealed: bytes = field(digest())
    last_step: int = field(big(default="0"))
    recovery: list[bytes] = field(Column(ARRAY(LargeBinary), nullable=False, server_default=text("'{}'")))
    created_at: datetime = field(moment())
    confirmed_at: datetime | None = field(moment(null=True))


class OperatorStep(SQLModel, table=True):
    """Half a login: the password was right, the code is still to come."""

    __tablename__ = "operator_steps"
    __table_args__ = (
        one_of("how", "link", "password", name="operator_step_how"),
        Index("operator_steps_of_operator", "operator_id"),
    )
    token_hash: bytes = field(digest(key=True))
    operator_id: int = field(big(to="operators.id"))
    how: str = field(words())
    created_at: datetime = field(moment())
    expires_at: datetime = field(moment(now=False))


class ApiKey(SQLModel, table=True):
    """What a program may do over REST, by a token that is kept as a hash only."""

    __tablename__ = "api_keys"
    __table_args__ = (
        CheckConstraint("cardinality(scopes) > 0", name="api_key_may_something"),
        CheckConstraint("octet_length(token_hash) = 32", name="api_key_is_kept_as_a_hash"),
        ForeignKeyConstraint(["site"], ["sites.name"], name="api_key_site", ondelete="CASCADE"),
        ForeignKeyConstraint(["agent_id"], ["agents.id"], name="api_key_agent", ondelete="CASCADE"),
        Index("api_key_of_a_name", "name", unique=True, postgresql_where=text("revoked_at IS NULL")),
    )
    id: int = field(identity())
    name: str = field(words())
    prefix: str = field(words())
    token_hash: bytes = field(digest(unique=True))
    scopes: list[str] = field(text_list())
    site: str | None = field(words(null=True))
    agent_id: int | None = field(big(null=True))
    created_at: datetime = field(moment())
    expires_at: datetime | None = field(moment(null=True))
    last_used_at: datetime | None = field(moment(null=True))
    revoked_at: datetime | None = field(moment(null=True))


class AuditRecord(SQLModel, table=True):
    """Who read or changed what; each row carries the hash of the one before. Ids, never text."""

    __tablename__ = "audit"
    __table_args__ = (
        Index("audit_by_actor", "actor", "id"),
        Index("audit_by_action", "action", "id"),
        Index("audit_by_time", "at"),
    )
    id: int = field(identity())
    at: datetime = field(moment())
    actor: str = field(words())
    action: str = field(words())
    object: str = field(words(default=""))
    detail: dict[str, Any] = field(json())
    prev_hash: bytes = field(digest())
    hash: bytes = field(digest(unique=True))


def _counting(table: str, lane: str, owner: str) -> tuple[str, ...]:
    """How often each word occurs in a table's passages, kept in `recall_words` by triggers."""
    return (
        f"""CREATE FUNCTION count_words_of_{table}() RETURNS trigger LANGUAGE plpgsql AS $$
       DECLARE sign int := CASE TG_OP WHEN 'INSERT' THEN 1 ELSE -1 END;
       BEGIN
         INSERT INTO recall_words AS w (lane, owner, lexeme, passages, terms)
         SELECT '{lane}', c.{owner}, t.lexeme, sign * count(*), sign * sum(t.terms)
           FROM changed c CROSS JOIN LATERAL (
                SELECT lexeme, cardinality(positions) AS terms FROM unnest(c.vector)
                UNION ALL SELECT '', c.terms) t
          GROUP BY c.{owner}, t.lexeme ORDER BY c.{owner}, t.lexeme
         ON CONFLICT (lane, owner, lexeme) DO UPDATE
            SET passages = w.passages + excluded.passages, terms = w.terms + excluded.terms;
         IF TG_OP = 'DELETE' THEN
           DELETE FROM recall_words w WHERE w.lane = '{lane}' AND w.passages <= 0
              AND w.owner IN (SELECT {owner} FROM changed);
         END IF;
         RETURN NULL;
       END $$""",
        f"""CREATE TRIGGER count_added_words AFTER INSERT ON {table} REFERENCING NEW TABLE AS changed
       FOR EACH STATEMENT EXECUTE FUNCTION count_words_of_{table}()""",
        f"""CREATE TRIGGER count_gone_words AFTER DELETE ON {table} REFERENCING OLD TABLE AS changed
       FOR EACH STATEMENT EXECUTE FUNCTION count_words_of_{table}()""",
    )


class Erasure(SQLModel, table=True):
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


class ErasureWish(SQLModel, table=True):
    """Somebody asked what `/forget everything` would take, and may say yes for a while."""

    __tablename__ = "erasure_wishes"
    session_id: int = field(big(key=True, to="sessions.id"))
    asked_at: datetime = field(moment())


BEFORE_TABLES = (
    "CREATE EXTENSION IF NOT EXISTS btree_gist",
    """CREATE FUNCTION name_pieces(text) RETURNS text[]
       LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
         SELECT coalesce(array_agg(DISTINCT substr(lower($1), n, 3)), '{}')
           FROM generate_series(1, length($1) - 2) n $$""",
    """CREATE FUNCTION recall_keys(bigint, tsvector) RETURNS text[]
       LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
         SELECT array_agg($1 || ':' || lexeme) FROM unnest(tsvector_to_array($2)) AS lexeme $$""",
)
ENTRIES = (
    """CREATE FUNCTION key_cid(text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
         SELECT CASE WHEN $1 LIKE 'web:%' THEN substr($1, 5)
                     WHEN $1 LIKE 'operator:%' THEN substr($1, 10) END $$""",
    """CREATE VIEW entries AS
       SELECT session_id, seq,
              coalesce(role, CASE author WHEN 'assistant' THEN 'assistant' ELSE 'user' END) AS role, author,
              CASE WHEN words IS NULL THEN blocks
                   ELSE jsonb_build_array(jsonb_build_object('type', 'text', 'text', words)) END AS blocks,
              tokens, dedupe_key, coalesce(cid, key_cid(dedupe_key)) AS cid, replaces_seq, at
         FROM entry_rows""",
    "ALTER VIEW entries ALTER COLUMN at SET DEFAULT now()",
    """CREATE FUNCTION plain_words(jsonb) RETURNS text LANGUAGE sql STABLE PARALLEL SAFE AS $$
         SELECT words FROM (SELECT $1 -> 0 ->> 'text' AS words) AS first
          WHERE $1 = jsonb_build_array(jsonb_build_object('type', 'text', 'text', words)) $$""",
    """CREATE FUNCTION entries_are_rows() RETURNS trigger LANGUAGE plpgsql AS $$
       DECLARE kept entry_rows;
       BEGIN
         IF TG_OP = 'DELETE' THEN
           DELETE FROM entry_rows WHERE session_id = OLD.session_id AND seq = OLD.seq;
           RETURN OLD;
         END IF;
         kept.session_id := NEW.session_id;
         kept.seq := NEW.seq;
         kept.author := NEW.author;
         kept.role := nullif(NEW.role, CASE NEW.author WHEN 'assistant' THEN 'assistant' ELSE 'user' END);
         kept.words := plain_words(NEW.blocks);
         kept.blocks := CASE WHEN kept.words IS NULL THEN NEW.blocks END;
         kept.tokens := NEW.tokens;
         kept.dedupe_key := NEW.dedupe_key;
         kept.cid := nullif(NEW.cid, key_cid(NEW.dedupe_key));
         kept.replaces_seq := NEW.replaces_seq;
         kept.at := NEW.at;
         IF TG_OP = 'INSERT' THEN
           INSERT INTO entry_rows (session_id, seq, role, author, blocks, tokens, dedupe_key, cid,
                                   replaces_seq, at, words)
           VALUES (kept.session_id, kept.seq, kept.role, kept.author, kept.blocks, kept.tokens,
                   kept.dedupe_key, kept.cid, kept.replaces_seq, kept.at, kept.words);
         ELSE
           UPDATE entry_rows SET session_id = kept.session_id, seq = kept.seq, role = kept.role,
                  author = kept.author, blocks = kept.blocks, tokens = kept.tokens,
                  dedupe_key = kept.dedupe_key, cid = kept.cid, replaces_seq = kept.replaces_seq,
                  at = kept.at, words = kept.words
            WHERE session_id = OLD.session_id AND seq = OLD.seq;
         END IF;
         RETURN NEW;
       END $$""",
    """CREATE TRIGGER entries_are_rows INSTEAD OF INSERT OR UPDATE OR DELETE ON entries
       FOR EACH ROW EXECUTE FUNCTION entries_are_rows()""",
)
"""The log as programs know it, each row in the shortest form that reads the same.

A process of a version before writes and reads it whole, by the same names, and its rows are as short.
"""
AUDITS = (
    """CREATE FUNCTION part_keys(bytea) RETURNS jsonb LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
         SELECT jsonb_agg(encode(substr($1, 32 * n + 1, 32), 'hex') ORDER BY n)
           FROM generate_series(0, length($1) / 32 - 1) AS n $$""",
    """CREATE VIEW turn_context_audit AS
       SELECT id, created_at, session_id, turn_id, model_alias, model_context_limit, input_budget,
              hard_limit,
              estimated_input_tokens_before, estimated_input_tokens_after_summary,
              estimated_input_tokens_after_prune, reported_input_tokens, context_tokens, summary_triggered,
              prune_triggered, overflow_rejected,
              coalesce(parts, jsonb_strip_nulls(jsonb_build_object('system', system_tokens, 'memory',
                memory_tokens, 'summary', summary_tokens, 'history', history_tokens, 'tools', tools_tokens)))
                AS parts,
              coalesce(part_hashes, part_keys(hashes), '[]'::jsonb) AS part_hashes,
              entry_from, entry_through, base_turn, head, coalesce(prune_seqs, '[]'::jsonb) AS prune_seqs,
              renderer_version,
              coalesce(recipe, jsonb_build_object('open', turn_id, 'system', 1, 'tools', true, 'seqs',
                jsonb_build_array(jsonb_build_array(entry_from, entry_through))) || plan::jsonb, '{}'::jsonb)
                AS recipe,
              model_ms
         FROM audit_rows""",
    """ALTER VIEW turn_context_audit ALTER COLUMN id SET DEFAULT nextval('audit_rows_id_seq'),
         ALTER COLUMN created_at SET DEFAULT now(), ALTER COLUMN summary_triggered SET DEFAULT false,
         ALTER COLUMN prune_triggered SET DEFAULT false, ALTER COLUMN overflow_rejected SET DEFAULT false,
         ALTER COLUMN parts SET DEFAULT '{}', ALTER COLUMN part_hashes SET DEFAULT '[]',
         ALTER COLUMN entry_from SET DEFAULT 0, ALTER COLUMN entry_through SET DEFAULT 0,
         ALTER COLUMN base_turn SET DEFAULT 0, ALTER COLUMN prune_seqs SET DEFAULT '[]',
         ALTER COLUMN renderer_version SET DEFAULT 1, ALTER COLUMN recipe SET DEFAULT '{}'""",
    """CREATE FUNCTION audits_are_rows() RETURNS trigger LANGUAGE plpgsql AS $$
       BEGIN
         IF TG_OP = 'DELETE' THEN
           DELETE FROM audit_rows WHERE id = OLD.id AND created_at = OLD.created_at;
           RETURN OLD;
         END IF;
         IF TG_OP = 'UPDATE' THEN
           UPDATE audit_rows
              SET created_at = NEW.created_at, session_id = NEW.session_id, turn_id = NEW.turn_id,
                  model_alias = NEW.model_alias, model_context_limit = NEW.model_context_limit,
                  input_budget = NEW.input_budget, hard_limit = NEW.hard_limit,
                  estimated_input_tokens_before = NEW.estimated_input_tokens_before,
                  estimated_input_tokens_after_summary = NEW.estimated_input_tokens_after_summary,
                  estimated_input_tokens_after_prune = NEW.estimated_input_tokens_after_prune,
                  reported_input_tokens = NEW.reported_input_tokens, context_tokens = NEW.context_tokens,
                  summary_triggered = NEW.summary_triggered, prune_triggered = NEW.prune_triggered,
                  overflow_rejected = NEW.overflow_rejected, parts = NEW.parts,
                  part_hashes = NEW.part_hashes, entry_from = NEW.entry_from,
                  entry_through = NEW.entry_through, base_turn = NEW.base_turn, head = NEW.head,
                  prune_seqs = NEW.prune_seqs, renderer_version = NEW.renderer_version, recipe = NEW.recipe,
                  model_ms = NEW.model_ms, hashes = NULL, plan = NULL
            WHERE id = OLD.id AND created_at = OLD.created_at;
           RETURN NEW;
         END IF;
         INSERT INTO audit_rows (
           id, created_at, session_id, turn_id, model_alias, model_context_limit, input_budget, hard_limit,
           estimated_input_tokens_before, estimated_input_tokens_after_summary,
           estimated_input_tokens_after_prune, reported_input_tokens, context_tokens, summary_triggered,
           prune_triggered, overflow_rejected, parts, part_hashes, entry_from, entry_through, base_turn, head,
           prune_seqs, renderer_version, recipe, model_ms)
         VALUES (
           NEW.id, NEW.created_at, NEW.session_id, NEW.turn_id, NEW.model_alias, NEW.model_context_limit,
           NEW.input_budget, NEW.hard_limit, NEW.estimated_input_tokens_before,
           NEW.estimated_input_tokens_after_summary, NEW.estimated_input_tokens_after_prune,
           NEW.reported_input_tokens, NEW.context_tokens, NEW.summary_triggered, NEW.prune_triggered,
           NEW.overflow_rejected, NEW.parts, NEW.part_hashes, NEW.entry_from, NEW.entry_through,
           NEW.base_turn, NEW.head, NEW.prune_seqs, NEW.renderer_version, NEW.recipe, NEW.model_ms);
         RETURN NEW;
       END $$""",
    """CREATE TRIGGER audits_are_rows INSTEAD OF INSERT OR UPDATE OR DELETE ON turn_context_audit
       FOR EACH ROW EXECUTE FUNCTION audits_are_rows()""",
)
"""Audits as programs know them. A process of a version before writes and reads them whole, by the same names;
whoever changes a row, as forgetting does, leaves it in its long form.
"""
NAMES = (
    """CREATE FUNCTION session_knows_its_person() RETURNS trigger LANGUAGE plpgsql AS $$
       DECLARE whose parties;
       BEGIN
         SELECT * INTO whose FROM parties WHERE id = NEW.party_id FOR SHARE;
         IF TG_OP = 'INSERT' THEN
           NEW.person := coalesce(lower(whose.display_name), '');
           NEW.person_name := whose.display_name;
           NEW.person_kind := whose.kind;
           NEW.person_anonymous := whose.anonymous;
           RETURN NEW;
         END IF;
         UPDATE sessions SET person = lower(whose.display_name), person_name = whose.display_name,
                person_kind = whose.kind, person_anonymous = whose.anonymous WHERE id = NEW.id;
         RETURN NULL;
       END $$""",
    """CREATE TRIGGER session_begins_with_its_person BEFORE INSERT ON sessions
       FOR EACH ROW EXECUTE FUNCTION session_knows_its_person()""",
    """CREATE TRIGGER session_changes_its_person AFTER UPDATE OF party_id ON sessions
       FOR EACH ROW WHEN (NEW.party_id <> OLD.party_id)
       EXECUTE FUNCTION session_knows_its_person()""",
    """CREATE FUNCTION sessions_know_a_new_name() RETURNS trigger LANGUAGE plpgsql AS $$
       BEGIN
         UPDATE sessions SET person = lower(NEW.display_name), person_name = NEW.display_name,
                person_kind = NEW.kind, person_anonymous = NEW.anonymous WHERE party_id = NEW.id;
         RETURN NULL;
       END $$""",
    """CREATE TRIGGER sessions_know_a_new_name AFTER UPDATE OF display_name, kind, anonymous ON parties
       FOR EACH ROW WHEN ((NEW.display_name, NEW.kind, NEW.anonymous)
                          IS DISTINCT FROM (OLD.display_name, OLD.kind, OLD.anonymous))
       EXECUTE FUNCTION sessions_know_a_new_name()""",
)
"""A person's row is held until their session is there: whoever changes the name waits, and then sees it.

After a change, not before it: else each change of a session, every turn's, too, would lock its row for that.
"""

TOTALS = (
    """CREATE FUNCTION totals_add_up() RETURNS trigger LANGUAGE plpgsql AS $$
       BEGIN
         UPDATE session_totals
            SET total_tokens = input_tokens + cache_read_tokens + cache_write_tokens + output_tokens
          WHERE session_id = NEW.session_id;
         RETURN NULL;
       END $$""",
    """CREATE TRIGGER totals_add_up AFTER INSERT OR UPDATE ON session_totals
       FOR EACH ROW WHEN (NEW.total_tokens <> NEW.input_tokens + NEW.cache_read_tokens
                                              + NEW.cache_write_tokens + NEW.output_tokens)
       EXECUTE FUNCTION totals_add_up()""",
)
"""A program of before leaves the total as it was: it is put right after that, for a trigger that comes
before a row is written locks it, which is a record of the log in each turn. `check_invariants` knows the
sum, too.
"""
UNCERTAIN = (
    """CREATE FUNCTION uncertain_parts_are_told() RETURNS trigger LANGUAGE plpgsql AS $$
       BEGIN
         IF NEW.state = 'uncertain' THEN
           INSERT INTO uncertain_notices AS n (session_id, turn_no, address_id)
           VALUES (NEW.session_id, NEW.turn_no, NEW.address_id)
           ON CONFLICT (session_id, turn_no) DO UPDATE
              SET state = 'due', round = n.round + 1, tries = 0, due_at = now() WHERE n.state = 'over';
         ELSE
           UPDATE uncertain_notices SET due_at = now()
            WHERE session_id = NEW.session_id AND turn_no = NEW.turn_no AND state <> 'over';
         END IF;
         RETURN NULL;
       END $$""",
    """CREATE TRIGGER uncertain_parts_are_told AFTER INSERT ON deliveries
       FOR EACH ROW WHEN (NEW.channel = 'telegram' AND NEW.state = 'uncertain')
       EXECUTE FUNCTION uncertain_parts_are_told()""",
    """CREATE TRIGGER uncertain_parts_are_seen_to AFTER UPDATE OF state ON deliveries
       FOR EACH ROW WHEN (NEW.channel = 'telegram' AND (NEW.state = 'uncertain') <> (OLD.state = 'uncertain'))
       EXECUTE FUNCTION uncertain_parts_are_told()""",
)
"""Whoever marks a part as uncertain, in this version or in one before, owes its person a word; and what was
told is looked at again as soon as more is known.
"""
LISTED_CHANGES = (
    """CREATE FUNCTION session_is_listed() RETURNS trigger LANGUAGE plpgsql AS $$
       BEGIN
         INSERT INTO session_list (id, public_id, party_id, agent_id, next_turn, context_tokens,
                                   context_limit, last_active_at, troubled_at, last_channel, person)
         VALUES (NEW.id, NEW.public_id, NEW.party_id, NEW.agent_id, NEW.next_turn, NEW.context_tokens,
                 NEW.context_limit, NEW.last_active_at, NEW.troubled_at, NEW.last_channel, NEW.person);
         RETURN NULL;
       END $$""",
    """CREATE TRIGGER session_is_listed AFTER INSERT ON sessions
       FOR EACH ROW EXECUTE FUNCTION session_is_listed()""",
    """CREATE FUNCTION session_is_listed_by_name() RETURNS trigger LANGUAGE plpgsql AS $$
       BEGIN
         UPDATE session_list SET person = NEW.person WHERE id = NEW.id;
         RETURN NULL;
       END $$""",
    """CREATE TRIGGER session_is_listed_by_name AFTER UPDATE OF person ON sessions
       FOR EACH ROW WHEN (NEW.person <> OLD.person) EXECUTE FUNCTION session_is_listed_by_name()""",
    """CREATE FUNCTION list_hears_of_session() RETURNS trigger LANGUAGE plpgsql AS $$
       BEGIN
         INSERT INTO session_list_changes VALUES (NEW.id);
         PERFORM set_config('evertalk.listed', NEW.id::text, true);
         RETURN NULL;
       END $$""",
    """CREATE TRIGGER list_hears_of_session
       AFTER UPDATE OF party_id, agent_id, next_turn, context_tokens, context_limit, last_active_at,
                       troubled_at, last_channel, leased_by ON sessions
       FOR EACH ROW WHEN (
         OLD.leased_by IS NOT NULL AND NEW.leased_by IS NULL
         OR (OLD.leased_by IS NOT NULL OR NEW.leased_by IS NULL)
            AND (OLD.party_id, OLD.agent_id, OLD.next_turn, OLD.context_tokens, OLD.context_limit,
                 OLD.last_active_at, OLD.troubled_at, OLD.last_channel)
             IS DISTINCT FROM
                (NEW.party_id, NEW.agent_id, NEW.next_turn, NEW.context_tokens, NEW.context_limit,
                 NEW.last_active_at, NEW.troubled_at, NEW.last_channel))
       EXECUTE FUNCTION list_hears_of_session()""",
    """CREATE FUNCTION list_hears_of_totals() RETURNS trigger LANGUAGE plpgsql AS $$
       BEGIN
         IF current_setting('evertalk.listed', true) IS DISTINCT FROM NEW.session_id::text THEN
           INSERT INTO session_list_changes VALUES (NEW.session_id);
         END IF;
         RETURN NULL;
       END $$""",
    """CREATE TRIGGER list_hears_of_totals AFTER INSERT OR UPDATE ON session_totals
       FOR EACH ROW EXECUTE FUNCTION list_hears_of_totals()""",
)
"""A conversation is listed with its first row. Of one that is being answered the list hears with the answer,
so that most turns are one change; of an answer that takes long, whoever keeps the list finds out.
"""

AFTER_TABLES = (
    *TOTALS,
    """ALTER TABLE links ADD CONSTRAINT active_links_do_not_overlap
       EXCLUDE USING gist (session_id WITH =, int8range(from_turn, through_turn, '[]') WITH &&)
       WHERE (active) DEFERRABLE INITIALLY DEFERRED""",
    """CREATE VIEW session_summaries AS
       SELECT id, session_id, from_seq AS from_message_id, through_seq AS to_message_id,
              summary_text, created_at
         FROM links WHERE kind IN ('summary', 'digest')""",
    "CREATE TABLE usage_other PARTITION OF usage DEFAULT",
    "CREATE TABLE turn_context_audit_other PARTITION OF audit_rows DEFAULT",
    *AUDITS,
    """CREATE FUNCTION entries_are_only_added() RETURNS trigger LANGUAGE plpgsql AS $$
       BEGIN
         IF current_setting('evertalk.erasing', true) = 'yes' THEN RETURN coalesce(NEW, OLD); END IF;
         RAISE EXCEPTION 'the log is only ever added to' USING ERRCODE = 'integrity_constraint_violation';
       END $$""",
    """CREATE TRIGGER entries_are_only_added BEFORE UPDATE OR DELETE ON entry_rows
       FOR EACH ROW EXECUTE FUNCTION entries_are_only_added()""",
    *ENTRIES,
    """CREATE FUNCTION party_family(bigint) RETURNS SETOF bigint LANGUAGE sql STABLE ROWS 1 AS $$
         SELECT $1 UNION ALL SELECT id FROM parties WHERE merged_into = $1 $$""",
    *NAMES,
    *UNCERTAIN,
    *LISTED_CHANGES,
    """CREATE FUNCTION agent_cap(config jsonb, name text) RETURNS bigint
           LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
         SELECT CASE WHEN jsonb_typeof(config #> ARRAY['caps', name]) = 'number'
                     THEN (least(greatest((config #>> ARRAY['caps', name])::numeric, 0), 1000000)
                           * 1000000)::bigint
                END $$""",
    *_counting("passages", "said", "session_id"),
    *_counting("knowledge", "knowledge", "agent_id"),
    """CREATE FUNCTION forget_words_of_note() RETURNS trigger LANGUAGE plpgsql AS $$
       BEGIN
         DELETE FROM note_words WHERE note_id = NEW.id;
         RETURN NULL;
       END $$""",
    """CREATE TRIGGER forget_words_of_note
       AFTER UPDATE OF text, forgotten_at, superseded_by, party_id ON notes
       FOR EACH ROW EXECUTE FUNCTION forget_words_of_note()""",
    """CREATE FUNCTION erased_blocks(jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
         SELECT coalesce(jsonb_agg(x.block ORDER BY x.place), '[{"type": "text", "text": "[erased]"}]'::jsonb)
           FROM (SELECT DISTINCT ON (y.place) y.place, y.block FROM (
                   SELECT CASE WHEN b ->> 'type' IN ('tool_use', 'tool_result') THEN n ELSE 0 END AS place, n,
                          CASE b ->> 'type'
                            WHEN 'tool_use' THEN jsonb_build_object(
                              'type', 'tool_use', 'id', b -> 'id', 'name', b -> 'name', 'input', '{}'::jsonb)
                            WHEN 'tool_result' THEN jsonb_build_object(
                              'type', 'tool_result', 'tool_use_id', b -> 'tool_use_id', 'text', '[erased]',
                              'is_error', coalesce(b -> 'is_error', 'false'::jsonb))
                            ELSE '{"type": "text", "text": "[erased]"}'::jsonb END AS block
                     FROM jsonb_array_elements($1) WITH ORDINALITY AS e(b, n)) y
                  ORDER BY y.place, y.n) x $$""",
    """CREATE FUNCTION nothing_of_erased_turns() RETURNS trigger LANGUAGE plpgsql AS $$
       DECLARE erased bigint;
       BEGIN
         SELECT erased_turn INTO erased FROM sessions WHERE id = NEW.session_id FOR SHARE;
         IF coalesce(NEW.through_turn, NEW.from_turn) <= erased
            OR EXISTS (SELECT FROM flushes WHERE id = NEW.flush_id AND outcome <> 'running') THEN
           RETURN NULL;
         END IF;
         RETURN NEW;
       END $$""",
    """CREATE TRIGGER notes_not_of_erased_turns BEFORE INSERT ON notes
       FOR EACH ROW EXECUTE FUNCTION nothing_of_erased_turns()""",
    """CREATE FUNCTION audit_is_only_added() RETURNS trigger LANGUAGE plpgsql AS $$
       BEGIN
         RAISE EXCEPTION 'the audit is only ever added to' USING ERRCODE = 'integrity_constraint_violation';
       END $$""",
    """CREATE TRIGGER audit_is_only_added BEFORE UPDATE OR DELETE OR TRUNCATE ON audit
       FOR EACH STATEMENT EXECUTE FUNCTION audit_is_only_added()""",
    "ALTER TABLE audit ENABLE ALWAYS TRIGGER audit_is_only_added",
    """CREATE FUNCTION erasures_stay_on_record() RETURNS trigger LANGUAGE plpgsql AS $$
       BEGIN
         IF TG_OP = 'UPDATE' AND OLD.state = 'running'
            AND (NEW.at, NEW.party_hash, NEW.actor, NEW.scope)
              = (OLD.at, OLD.party_hash, OLD.actor, OLD.scope)
            AND NEW.about IS NOT DISTINCT FROM OLD.about THEN
           RETURN NEW;
         END IF;
         IF TG_OP = 'DELETE' AND OLD.state = 'done' AND OLD.at < now() - interval '1095 days' THEN
           RETURN OLD;
         END IF;
         RAISE EXCEPTION 'an erasure stays on record' USING ERRCODE = 'integrity_constraint_violation';
       END $$""",
    """CREATE TRIGGER erasures_stay_on_record BEFORE UPDATE OR DELETE ON erasures
       FOR EACH ROW EXECUTE FUNCTION erasures_stay_on_record()""",
    """CREATE TRIGGER erasures_are_not_emptied BEFORE TRUNCATE ON erasures
       FOR EACH STATEMENT EXECUTE FUNCTION erasures_stay_on_record()""",
    "ALTER TABLE erasures ENABLE ALWAYS TRIGGER erasures_stay_on_record",
    "ALTER TABLE erasures ENABLE ALWAYS TRIGGER erasures_are_not_emptied",
    """CREATE FUNCTION make_months(ahead integer) RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$
       DECLARE grown record; start date; month text; taken boolean; other regrole;
       BEGIN
         FOR grown IN VALUES ('usage', 'at', 'usage'),
                             ('turn_context_audit', 'created_at', 'audit_rows') LOOP
           FOR step IN 0..least(ahead, 12) LOOP
             start := (date_trunc('month', now() AT TIME ZONE 'UTC') + make_interval(months => step))::date;
             month := grown.column1 || to_char(start, '_YYYY_MM');
             CONTINUE WHEN to_regclass(month) IS NOT NULL;
             EXECUTE format('SELECT EXISTS (SELECT FROM %I WHERE %I >= $1 AND %2$I < $2)',
                            grown.column1 || '_other', grown.column2)
                INTO taken USING start, start + interval '1 month';
             IF NOT taken THEN
               EXECUTE format('CREATE TABLE %I PARTITION OF %I FOR VALUES FROM (%L) TO (%L)',
                              month, grown.column3, start || ' 00:00+00',
                              (start + interval '1 month')::date || ' 00:00+00');
               -- An empty range counts as summed up: each of its first rows would change that sum.
               PERFORM brin_desummarize_range(i.indexrelid, 0)
                  FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam
                 WHERE i.indrelid = month::regclass AND a.amname = 'brin';
               -- Whoever may write does it by the table, which says who may change what.
               FOR other IN SELECT DISTINCT a.grantee::regrole FROM pg_class c, aclexplode(c.relacl) a
                             WHERE c.oid = month::regclass AND a.grantee NOT IN (0, c.relowner) LOOP
                 EXECUTE format('REVOKE INSERT, UPDATE, DELETE ON %I FROM %s', month, other);
               END LOOP;
             END IF;
           END LOOP;
         END LOOP;
       END $$""",
    r"""CREATE FUNCTION drop_months(grown text, months integer) RETURNS bigint
           LANGUAGE plpgsql SECURITY DEFINER AS $$
       DECLARE old text; dropped bigint := 0;
       BEGIN
         IF grown NOT IN ('usage', 'turn_context_audit') OR months < 6 THEN
           RAISE EXCEPTION 'these months stay' USING ERRCODE = 'integrity_constraint_violation';
         END IF;
         FOR old IN SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
                     WHERE i.inhparent IN ('usage'::regclass, 'audit_rows'::regclass)
                       AND c.relname ~ ('^' || grown || '_\d{4}_\d{2}$')
                       AND to_date(right(c.relname, 7), 'YYYY_MM') + interval '1 month'
                           <= date_trunc('month', now() AT TIME ZONE 'UTC') - make_interval(months => months)
         LOOP
           EXECUTE format('DROP TABLE %I', old);
           dropped := dropped + 1;
         END LOOP;
         RETURN dropped;
       END $$""",
    # A function that has its owner's rights looks for tables nowhere but where its owner has them.
    """DO $$ BEGIN
         EXECUTE format('ALTER FUNCTION make_months(integer) SET search_path = %I, pg_temp',
                        current_schema());
         EXECUTE format('ALTER FUNCTION drop_months(text, integer) SET search_path = %I, pg_temp',
                        current_schema());
       END $$""",
    """CREATE FUNCTION held_parties() RETURNS SETOF bigint LANGUAGE sql STABLE ROWS 5 AS $$
         SELECT f FROM parties h CROSS JOIN LATERAL party_family(coalesce(h.merged_into, h.id)) AS f
          WHERE h.on_hold_since IS NOT NULL $$""",
    """CREATE FUNCTION held_sessions() RETURNS SETOF bigint LANGUAGE sql STABLE ROWS 5 AS $$
         SELECT id FROM sessions WHERE party_id IN (SELECT held_parties()) $$""",
    """CREATE FUNCTION note_timeline() RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER AS $$
       DECLARE now_on text := left(pg_walfile_name(pg_current_wal_insert_lsn()), 8); before text;
       BEGIN
         SELECT timeline INTO before FROM deployment WHERE timeline <> now_on FOR UPDATE;
         IF NOT FOUND THEN
           RETURN false;
         END IF;
         UPDATE deployment SET timeline = now_on,
                log_epoch = CASE WHEN before = '' THEN log_epoch ELSE
                  greatest(log_epoch + 1, extract(epoch FROM clock_timestamp())::bigint) END;
         RETURN before <> '';
       END $$""",
    """DO $$ BEGIN
         EXECUTE format('ALTER FUNCTION note_timeline() SET search_path = %I, pg_temp', current_schema());
       END $$""",
)
"""What SQLModel cannot say: the migration runs the same statements, a test compares both dumps."""


def _run_with(moment_name: str, statements: tuple[str, ...]) -> None:
    for statement in statements:
        ddl = DDL(statement.replace("%", "%%"))  # type: ignore[no-untyped-call]
        event.listen(SQLModel.metadata, moment_name, ddl)


_run_with("before_create", BEFORE_TABLES)
_run_with("after_create", AFTER_TABLES)
