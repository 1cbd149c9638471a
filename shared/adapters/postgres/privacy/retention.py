"""Retention: how long the rows of each table are kept, and their deletion in small batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from shared.adapters.postgres.db.partitions import MONTHS_OF
from shared.adapters.postgres.db.pool import Named, PoolStore, store_method

BATCH = 2_000
"""Maximum rows of one batch."""
BATCHES_AT_MOST = 20
"""Maximum batches of one table in one sweep."""
PUSH_DAYS = 30
"""Days without a visit after which a push subscription is deleted."""
GRACE_DAYS = 2
"""Days by which rows may be overdue before that counts as a violated invariant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """Rule that deletes or blanks rows older than `days`; `period` is the text for the documents.

    `key` are the columns of the primary key.
    """

    days: int
    where: str
    """SQL condition; `interval :age` is the time that rows are kept."""
    key: str
    period: str
    costly: bool = False
    """Whether the condition is too expensive for the check of invariants."""
    instead: str = ""
    """`SET …` for rows that are blanked; "" for rows that are deleted."""
    whose: Literal["", "session", "contact"] = ""
    """Owner of the rows, which stay while the person is on legal hold; "" if a hold does not apply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedMonths:
    """Rule that drops month partitions older than `months`."""

    months: int
    period: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRows:
    """Rule for rows that no sweep deletes; `period` is the text for the documents."""

    period: str


Rule: TypeAlias = Sweep | DroppedMonths | KeptRows


def _expired(key: str) -> Sweep:
    return Sweep(
        days=1, key=key, where="expires_at < now() - interval :age", period="a day after they expire"
    )


_FORGET = "until they are erased; with `EVERTALK_RETENTION_DAYS`, that many days after the last message"
_WITH_TALK = "as long as the conversation"

RULES: Mapping[str, Rule] = {
    "entry_rows": KeptRows(period=_FORGET),
    "compactions": KeptRows(period=_FORGET),
    "turns": KeptRows(period=_WITH_TALK),
    "turn_entries": KeptRows(period=_WITH_TALK),
    "turn_steps": KeptRows(period=_WITH_TALK),
    "uncertain_notices": KeptRows(period=_WITH_TALK),
    "sample_plays": KeptRows(period=_WITH_TALK),
    "pins": KeptRows(period=_WITH_TALK),
    "prune_decisions": KeptRows(period=_WITH_TALK),
    "artifacts": KeptRows(period=_WITH_TALK),
    "notes": KeptRows(period="until they are erased"),
    "reminders": Sweep(
        whose="contact",
        days=30,
        key="id",
        where="ended_at < now() - interval :age AND text <> '-'",
        instead="SET text = '-'",
        period="text: 30 days after delivery",
    ),
    "handovers": Sweep(
        whose="session",
        days=30,
        key="id",
        where="ended_at < now() - interval :age AND reason <> ''",
        instead="SET reason = ''",
        period="reason: 30 days after the end",
    ),
    "private_notes": KeptRows(period=_FORGET),
    "feedback": KeptRows(period=_WITH_TALK),
    "passages": KeptRows(period=_WITH_TALK),
    "passage_vectors": KeptRows(period=_WITH_TALK),
    "note_words": KeptRows(period="as long as the note"),
    "import_files": Sweep(
        days=1,
        key="id",
        where="touched_at < now() - interval :age AND coalesce(leased_until, '-infinity') < now()",
        period="a day after the last piece or the import",
    ),
    "import_pieces": KeptRows(period="until the file is imported, refused or deleted"),
    "past_summaries": KeptRows(period="until the import is undone or erased"),
    "past_imports": KeptRows(period="permanently; ids, numbers and times, and a hash until it is undone"),
    "note_vectors": KeptRows(period="as long as the note"),
    "note_changes": KeptRows(period="as long as both notes; ids and times, without text"),
    "unencoded_notes": KeptRows(period="until the notes have vectors; numbers of notes only"),
    "unindexed_notes": KeptRows(period="seconds; numbers of notes only"),
    "left_sessions": KeptRows(period="until the conversation is searchable; numbers of conversations only"),
    "due_tidyings": KeptRows(period="until the notes are tidied; numbers of people only"),
    "unencoded_sessions": KeptRows(period="until the passages have vectors; numbers of conversations only"),
    "recall_words": KeptRows(period="as long as the messages that they count"),
    "knowledge": KeptRows(period="as long as the file"),
    "forks": KeptRows(period="permanently; ids, numbers and a hash only"),
    "contact_links": KeptRows(period="permanently; ids and times only"),
    "note_lists": _expired("session_id, address_id"),
    "link_guesses": Sweep(days=1, key="id", where="at < now() - interval :age", period="a day"),
    "sessions": KeptRows(period="permanently; numbers only"),
    "session_totals": KeptRows(period="permanently; numbers only"),
    "session_list": KeptRows(period="as long as the conversation; a copy for the dashboard"),
    "listed_minutes": KeptRows(period="25 hours; numbers of conversations only"),
    "session_list_changes": KeptRows(period="seconds; numbers of conversations only"),
    "session_spend": KeptRows(period="permanently; numbers only"),
    "addresses": KeptRows(period="as long as the chat or visitor can write"),
    "contacts": Sweep(
        days=2,
        key="id",
        where="network IS NOT NULL AND network_at < now() - interval :age",
        instead="SET network = NULL, network_at = NULL",
        period="as long as their conversations; hash of an anonymous visitor's network: 2 days",
    ),
    "spend_days": Sweep(
        days=30,
        key="scope, day",
        where="scope LIKE 'network:%' AND day < (now() - interval :age)::date",
        period="permanently, numbers only; rows of hashed networks: 30 days",
    ),
    "agents": KeptRows(period="configuration"),
    "agent_versions": KeptRows(period="the newest hundred of each agent"),
    "sites": KeptRows(period="configuration"),
    "refused_origins": Sweep(
        days=30,
        key="site, origin",
        where="last_at < now() - interval :age",
        period="30 days after they last asked",
    ),
    "site_secrets": KeptRows(period="configuration"),
    "stored_settings": KeptRows(period="configuration"),
    "telegram_bots": KeptRows(period="configuration"),
    "telegram_access": KeptRows(period="until an operator changes it"),
    "operators": KeptRows(period="configuration"),
    "canned_replies": KeptRows(period="configuration"),
    "macros": KeptRows(period="configuration"),
    "operator_pictures": KeptRows(period="configuration"),
    "operator_factors": KeptRows(period="configuration, encrypted"),
    "operator_steps": _expired("token_hash"),
    "api_keys": Sweep(
        days=365,
        key="id",
        where="coalesce(revoked_at, expires_at) < now() - interval :age",
        period="configuration; 365 days after revocation or expiry",
    ),
    "deployment": KeptRows(period="one row"),
    "leases": KeptRows(period="one row per bot"),
    "mcp_tool_lists": KeptRows(period="one row per MCP server and address"),
    "duties": KeptRows(period="one row per duty"),
    "job_kinds": KeptRows(period="configuration"),
    "hourly_stats": KeptRows(period="permanently; numbers only"),
    "hour_turns": KeptRows(period="seconds; numbers of turns only"),
    "hour_jobs": KeptRows(period="seconds; kinds of jobs only"),
    "hour_open": KeptRows(period="until the turn ends; numbers only"),
    "hour_people": KeptRows(period="3 days; numbers only"),
    "hour_marks": KeptRows(period="four rows"),
    "audit": KeptRows(period="permanently; a chain of hashes without content"),
    "attachments": Sweep(
        whose="session",
        days=1,
        costly=True,
        key="id",
        where="""created_at < now() - interval :age AND NOT EXISTS (
                   SELECT FROM entries e WHERE e.session_id = attachments.session_id AND e.blocks @>
                          jsonb_build_array(jsonb_build_object('attachment_id', attachments.id)))""",
        period="as long as the conversation; files that no message uses: a day",
    ),
    "spoken_answers": Sweep(
        whose="session",
        days=1,
        key="session_id, turn_no, form",
        where="created_at < now() - interval :age",
        period="a day",
    ),
    "telegram_updates": Sweep(
        days=14,
        key="bot_id, update_id",
        where="handled_at < now() - interval :age AND body <> jsonb_build_object('update_id', update_id)",
        instead="SET body = jsonb_build_object('update_id', update_id), error = ''",
        period="content: 14 days after handling; ids: permanently",
    ),
    "telegram_messages": Sweep(
        days=365,
        key="bot_id, chat_id, message_id",
        where="at < now() - interval :age",
        period="365 days; ids, and the texts of messages that share an entry",
    ),
    "secretary_drafts": Sweep(
        days=30,
        key="session_id, turn_no",
        where="ended_at < now() - interval :age AND (is_hidden OR state IN ('sent', 'uncertain', 'refused'))",
        period="30 days after their end, and until later requests leave out what was not sent",
    ),
    "secretary_messages": Sweep(
        days=365,
        key="bot_id, owner_id, chat_id, message_id",
        where="at < now() - interval :age",
        period="365 days; ids",
    ),
    "secretary_connections": Sweep(
        days=90,
        key="bot_id, connection_id",
        where="ended_at < now() - interval :age",
        period="90 days after their end",
    ),
    "guest_queries": Sweep(
        days=30,
        key="bot_id, update_id",
        where="ended_at < now() - interval :age",
        period="30 days after the answer",
    ),
    "events": Sweep(
        whose="session",
        days=365,
        key="session_id, event_seq",
        where="""at < now() - interval :age AND kind NOT IN ('msg', 'erased')
                 AND payload <> '{}' AND payload ->> 'state' IS DISTINCT FROM 'new'""",
        instead="SET payload = '{}'",
        period="messages: as long as the conversation; content of other events: 365 days",
    ),
    "deliveries": Sweep(
        whose="session",
        days=90,
        key="session_id, turn_no, part",
        where="created_at < now() - interval :age AND error <> ''",
        instead="SET error = ''",
        period="states: as long as the conversation; errors: 90 days",
    ),
    "flushes": Sweep(
        whose="session",
        days=90,
        key="id",
        where="""created_at < now() - interval :age AND (stray_text, error) <> ('', '')
                 AND outcome <> 'running'""",
        instead="SET stray_text = '', error = ''",
        period="numbers: as long as the conversation; text: 90 days",
    ),
    "checkpoints": Sweep(
        whose="session", days=90, key="id", where="created_at < now() - interval :age", period="90 days"
    ),
    "jobs": Sweep(
        whose="session",
        days=30,
        key="id",
        where="state IN ('done', 'dead') AND ended_at < now() - interval :age",
        period="30 days after the end",
    ),
    "compaction_hooks": Sweep(
        days=30, key="id", where="created_at < now() - interval :age", period="30 days"
    ),
    "reservations": Sweep(
        days=30,
        key="id",
        where="state <> 'held' AND created_at < now() - interval :age",
        period="30 days; `spend_days` keeps the sums",
    ),
    "spend_slices": Sweep(
        days=30, key="id", where="closed_at < now() - interval :age", period="30 days after closing"
    ),
    "prompt_parts": Sweep(
        days=2,
        costly=True,
        key="sha256",
        where="""created_at < now() - interval :age AND encode(sha256, 'hex') NOT IN (
                   SELECT h.hash FROM turn_context_audit a
                    CROSS JOIN LATERAL jsonb_array_elements_text(a.part_hashes) AS h(hash))""",
        period="as long as a context audit refers to them",
    ),
    "audit_rows": DroppedMonths(months=6, period="6 months, by monthly partition"),
    "usage": DroppedMonths(months=24, period="24 months, by monthly partition"),
    "one_time_codes": _expired("code_hash"),
    "login_links": _expired("token_hash"),
    "push_keys": KeptRows(period="one row, encrypted"),
    "push_subscriptions": Sweep(
        days=PUSH_DAYS,
        key="id",
        where="renewed_at < now() - interval :age",
        period=f"{PUSH_DAYS} days after the page was last open in that browser",
    ),
    "login_tries": Sweep(
        days=1, key="key", where="last_at < now() - interval :age", period="a day after the last failed login"
    ),
    "login_places": Sweep(
        days=90, key="key", where="at < now() - interval :age", period="90 days after the last login there"
    ),
    "operator_sessions": _expired("token_hash"),
    "visitors": _expired("token_hash"),
    "recovery_codes": _expired("address_id"),
    "workers": Sweep(
        days=7,
        key="id",
        where="""beat < now() - interval :age
                 AND NOT EXISTS (SELECT FROM sessions s WHERE s.leased_by = workers.id)
                 AND NOT EXISTS (SELECT FROM jobs j WHERE j.leased_by = workers.id)
                 AND NOT EXISTS (SELECT FROM leases l WHERE l.leased_by = workers.id)""",
        period="7 days after the last heartbeat",
    ),
    "process_faults": Sweep(days=30, key="id", where="at < now() - interval :age", period="30 days"),
    "alerts": Sweep(
        days=90, key="id", where="ended_at < now() - interval :age", period="90 days after they were resolved"
    ),
    "alert_sends": KeptRows(period="as long as the alert"),
    "erasures": Sweep(
        days=1095,
        key="id",
        where="state = 'done' AND at < now() - interval :age",
        period="3 years; numbers only",
    ),
    "erasure_wishes": Sweep(
        days=1, key="session_id", where="asked_at < now() - interval :age", period="a day"
    ),
}
"""Retention rule of each table of the schema."""


class PostgresRetention(PoolStore):
    """Store that applies the rules, each batch in its own transaction. It raises StorageUnavailable."""

    async def sweep(self, table: str) -> int:
        """Delete or blank rows of a table past their retention, and return their number.

        At most BATCHES_AT_MOST batches of BATCH rows; dropped months count as one each. Rows of people on
        legal hold stay. Raises KeyError for a table without a rule.
        """
        rule, done = RULES[table], 0
        if isinstance(rule, DroppedMonths):
            return await self._months(table, rule.months)
        if isinstance(rule, Sweep):
            for _ in range(BATCHES_AT_MOST):
                number = await self._rows(table, rule)
                done += number
                if number < BATCH:
                    break
        return done

    @store_method
    async def _rows(self, table: str, rule: Sweep) -> int:
        number: int = await self._pool.fetchval(render_statement(table, rule))
        return number

    @store_method
    async def _months(self, table: str, months: int) -> int:
        """Drop partitions of past months, and delete such old rows of the default partition.

        Returns their number together.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock(hashtext('evertalk.partitions'))")
            dropped = await connection.fetchval(*_DROP_MONTHS(prefix=MONTHS_OF[table], months=months))
            rest = await connection.fetchval(*_DELETE_MONTHS[table](months=months))
        return int(dropped) + int(rest)

    @store_method
    async def list_idle_sessions(self, days: int, *, limit: int = 20) -> list[int]:
        """Return at most `limit` sessions with text that were unused for `days`, the longest unused first.

        Sessions of people on legal hold are left out.
        """
        rows = await self._pool.fetch(
            *_IDLE_SESSIONS(days=days, limit=limit),
        )  # fmt: skip
        return [row["id"] for row in rows]


def render_statement(table: str, rule: Sweep) -> str:
    """Return the SQL that deletes or blanks one batch of at most BATCH rows and selects their number.

    The names of table and columns are put into a text here, since no parameter can be a name.
    """
    statement = _BLANK if rule.instead else _DELETE
    text = statement.format(
        table=table, key=rule.key, where=rule.where, hold=_HOLD[rule.whose], instead=rule.instead
    )
    return Named(text, age=f"{rule.days} days", batch=BATCH).sql


def render_condition(rule: Sweep, *, grace: int = 0) -> str:
    """Return the SQL condition of rows that are overdue by more than `grace` days and not on hold."""
    return Named(" ".join((rule.where, _HOLD[rule.whose])), age=f"{rule.days + grace} days").sql


_HOLD = {
    "": "",
    "session": "AND session_id NOT IN (SELECT held_sessions())",
    "contact": "AND contact_id NOT IN (SELECT held_contacts())",
}
"""Condition that rows of an owner are not on hold."""
_DELETE = """
WITH old AS (
  SELECT {key} FROM {table} WHERE {where} {hold} LIMIT :batch
), done AS (
  DELETE FROM {table} WHERE ({key}) IN (SELECT {key} FROM old) RETURNING 1
)
SELECT count(*) FROM done
"""
_BLANK = """
WITH old AS (
  SELECT {key} FROM {table} WHERE {where} {hold} LIMIT :batch
), done AS (
  UPDATE {table} {instead} WHERE ({key}) IN (SELECT {key} FROM old) RETURNING 1
)
SELECT count(*) FROM done
"""
_DROP_MONTHS = Named("SELECT drop_months(:prefix, :months)")
_DELETE_MONTHS = {
    "usage": Named("""
        WITH gone AS (
          DELETE FROM usage_other
           WHERE at < date_trunc('month', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'
                      - make_interval(months => :months)
          RETURNING 1
        )
        SELECT count(*) FROM gone"""),
    "audit_rows": Named("""
        WITH gone AS (
          DELETE FROM turn_context_audit_other
           WHERE created_at < date_trunc('month', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'
                              - make_interval(months => :months)
          RETURNING 1
        )
        SELECT count(*) FROM gone"""),
}
"""Deletion of old rows of the default partition, by table."""
_IDLE_SESSIONS = Named("""
SELECT s.id FROM session_list l JOIN sessions s ON s.id = l.id
 WHERE l.last_active_at < now() - make_interval(days => :days)
   AND s.last_active_at < now() - make_interval(days => :days) AND s.next_turn - 1 > s.erased_turn
   AND s.contact_id NOT IN (SELECT held_contacts()) ORDER BY l.last_active_at LIMIT :limit
""")
