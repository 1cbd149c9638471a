"""How long each table's rows are kept, and the small batches that let the rest go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from shared.adapters.postgres.db.partitions import MONTHS_OF, PARTITIONED
from shared.adapters.postgres.db.pool import store_method
from shared.adapters.postgres.db.store import PoolStore

BATCH = 2_000
BATCHES_AT_MOST = 20
"""Of one table in one sweep."""
PUSH_DAYS = 30
GRACE_DAYS = 2
"""A sweep that was away for a day is no violation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """Rows that match go; `days` is what the documents tell."""

    days: int
    where: str
    """With `{age}` for the interval."""
    key: str
    told: str
    costly: bool = False
    """Not looked for when invariants are checked."""
    instead: str = ""
    """`SET …` where rows lose their words and stay."""
    whose: Literal["", "session", "party"] = ""
    """Of whom there are words in it: rows of a person on hold stay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Months:
    """Whole partitions go."""

    months: int
    told: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stays:
    told: str


Rule: TypeAlias = Sweep | Months | Stays


def _expired(key: str) -> Sweep:
    return Sweep(days=1, key=key, where="expires_at < now() - {age}", told="a day after they expire")


_FORGET = "until they are erased; with `EVERTALK_RETENTION_DAYS`, that many days after the last message"
_WITH_TALK = "as long as the conversation"

RULES: Mapping[str, Rule] = {
    "entry_rows": Stays(told=_FORGET),
    "links": Stays(told=_FORGET),
    "turns": Stays(told=_WITH_TALK),
    "turn_entries": Stays(told=_WITH_TALK),
    "turn_steps": Stays(told=_WITH_TALK),
    "uncertain_notices": Stays(told=_WITH_TALK),
    "sample_plays": Stays(told=_WITH_TALK),
    "pins": Stays(told=_WITH_TALK),
    "prune_decisions": Stays(told=_WITH_TALK),
    "artifacts": Stays(told=_WITH_TALK),
    "notes": Stays(told="until they are erased"),
    "reminders": Sweep(
        whose="party",
        days=30,
        key="id",
        where="ended_at < now() - {age} AND text <> '-'",
        instead="SET text = '-'",
        told="text: 30 days after delivery",
    ),
    "handovers": Sweep(
        whose="session",
        days=30,
        key="id",
        where="ended_at < now() - {age} AND reason <> ''",
        instead="SET reason = ''",
        told="reason: 30 days after the end",
    ),
    "private_notes": Stays(told=_FORGET),
    "feedback": Stays(told=_WITH_TALK),
    "passages": Stays(told=_WITH_TALK),
    "note_words": Stays(told="as long as the note"),
    "recall_words": Stays(told="as long as the messages that they count"),
    "knowledge": Stays(told="as long as the file"),
    "party_links": Stays(told="permanently; ids and times only"),
    "note_lists": _expired("session_id, address_id"),
    "link_guesses": Sweep(days=1, key="id", where="at < now() - {age}", told="a day"),
    "sessions": Stays(told="permanently; numbers only"),
    "session_totals": Stays(told="permanently; numbers only"),
    "session_list": Stays(told="as long as the conversation; a copy for the dashboard"),
    "session_list_changes": Stays(told="seconds; numbers of conversations only"),
    "session_spend": Stays(told="permanently; numbers only"),
    "addresses": Stays(told="as long as the chat or visitor can write"),
    "parties": Sweep(
        days=2,
        key="id",
        where="network IS NOT NULL AND network_at < now() - {age}",
        instead="SET network = NULL, network_at = NULL",
        told="as long as their conversations; hash of an anonymous visitor's network: 2 days",
    ),
    "spend_days": Sweep(
        days=30,
        key="scope, day",
        where="scope LIKE 'network:%' AND day < (now() - {age})::date",
        told="permanently, numbers only; rows of hashed networks: 30 days",
    ),
    "agents": Stays(told="configuration"),
    "agent_versions": Stays(told="the newest hundred of each agent"),
    "sites": Stays(told="configuration"),
    "refused_origins": Sweep(
        days=30,
        key="site, origin",
        where="last_at < now() - {age}",
        told="30 days after they last asked",
    ),
    "site_secrets": Stays(told="configuration"),
    "stored_settings": Stays(told="configuration"),
    "telegram_bots": Stays(told="configuration"),
    "telegram_access": Stays(told="until an operator changes it"),
    "operators": Stays(told="configuration"),
    "canned_replies": Stays(told="configuration"),
    "operator_pictures": Stays(told="configuration"),
    "operator_factors": Stays(told="configuration, encrypted"),
    "operator_steps": _expired("token_hash"),
    "api_keys": Sweep(
        days=365,
        key="id",
        where="coalesce(revoked_at, expires_at) < now() - {age}",
        told="configuration; 365 days after revocation or expiry",
    ),
    "deployment": Stays(told="one row"),
    "leases": Stays(told="one row per bot"),
    "job_kinds": Stays(told="configuration"),
    "hourly_stats": Stays(told="permanently; numbers only"),
    "audit": Stays(told="permanently; a chain of hashes without content"),
    "attachments": Sweep(
        whose="session",
        days=1,
        costly=True,
        key="id",
        where="""created_at < now() - {age} AND NOT EXISTS (
                   SELECT FROM entries e WHERE e.session_id = attachments.session_id AND e.blocks @>
                          jsonb_build_array(jsonb_build_object('attachment_id', attachments.id)))""",
        told="as long as the conversation; files that no message uses: a day",
    ),
    "spoken_answers": Sweep(
        whose="session",
        days=1,
        key="session_id, turn_no, form",
        where="created_at < now() - {age}",
        told="a day",
    ),
    "telegram_updates": Sweep(
        days=14,
        key="bot_id, update_id",
        where="handled_at < now() - {age} AND body <> jsonb_build_object('update_id', update_id)",
        instead="SET body = jsonb_build_object('update_id', update_id), error = ''",
        told="content: 14 days after handling; ids: permanently",
    ),
    "telegram_messages": Sweep(
        days=365, key="bot_id, chat_id, message_id", where="at < now() - {age}", told="365 days; ids only"
    ),
    "events": Sweep(
        whose="session",
        days=365,
        key="session_id, event_seq",
        where="""at < now() - {age} AND kind NOT IN ('msg', 'erased')
                 AND payload <> '{{}}' AND payload ->> 'state' IS DISTINCT FROM 'new'""",
        instead="SET payload = '{{}}'",
        told="messages: as long as the conversation; content of other events: 365 days",
    ),
    "deliveries": Sweep(
        whose="session",
        days=90,
        key="session_id, turn_no, part",
        where="created_at < now() - {age} AND error <> ''",
        instead="SET error = ''",
        told="states: as long as the conversation; errors: 90 days",
    ),
    "flushes": Sweep(
        whose="session",
        days=90,
        key="id",
        where="created_at < now() - {age} AND (stray_text, error) <> ('', '') AND outcome <> 'running'",
        instead="SET stray_text = '', error = ''",
        told="numbers: as long as the conversation; text: 90 days",
    ),
    "checkpoints": Sweep(
        whose="session", days=90, key="id", where="created_at < now() - {age}", told="90 days"
    ),
    "jobs": Sweep(
        whose="session",
        days=30,
        key="id",
        where="state IN ('done', 'dead') AND ended_at < now() - {age}",
        told="30 days after the end",
    ),
    "reservations": Sweep(
        days=30,
        key="id",
        where="state <> 'held' AND created_at < now() - {age}",
        told="30 days; `spend_days` keeps the sums",
    ),
    "spend_slices": Sweep(days=30, key="id", where="closed_at < now() - {age}", told="30 days after closing"),
    "prompt_parts": Sweep(
        days=2,
        costly=True,
        key="sha256",
        where="""created_at < now() - {age} AND encode(sha256, 'hex') NOT IN (
                   SELECT h.hash FROM turn_context_audit a
                    CROSS JOIN LATERAL jsonb_array_elements_text(a.part_hashes) AS h(hash))""",
        told="as long as a context audit refers to them",
    ),
    "audit_rows": Months(months=6, told="6 months, by monthly partition"),
    "usage": Months(months=24, told="24 months, by monthly partition"),
    "one_time_codes": _expired("code_hash"),
    "login_links": _expired("token_hash"),
    "push_keys": Stays(told="one row, encrypted"),
    "push_subscriptions": Sweep(
        days=PUSH_DAYS,
        key="id",
        where="renewed_at < now() - {age}",
        told=f"{PUSH_DAYS} days after the page was last open in that browser",
    ),
    "login_tries": Sweep(
        days=1, key="key", where="last_at < now() - {age}", told="a day after the last failed login"
    ),
    "login_places": Sweep(
        days=90, key="key", where="at < now() - {age}", told="90 days after the last login there"
    ),
    "operator_sessions": _expired("token_hash"),
    "visitors": _expired("token_hash"),
    "recovery_codes": _expired("address_id"),
    "workers": Sweep(
        days=7,
        key="id",
        where="""beat < now() - {age}
                 AND NOT EXISTS (SELECT FROM sessions s WHERE s.leased_by = workers.id)
                 AND NOT EXISTS (SELECT FROM jobs j WHERE j.leased_by = workers.id)
                 AND NOT EXISTS (SELECT FROM leases l WHERE l.leased_by = workers.id)""",
        told="7 days after the last heartbeat",
    ),
    "alerts": Sweep(
        days=90, key="id", where="ended_at < now() - {age}", told="90 days after they were resolved"
    ),
    "alert_sends": Stays(told="as long as the alert"),
    "erasures": Sweep(
        days=1095, key="id", where="state = 'done' AND at < now() - {age}", told="3 years; numbers only"
    ),
    "erasure_wishes": Sweep(days=1, key="session_id", where="asked_at < now() - {age}", told="a day"),
}


class PostgresRetention(PoolStore):
    """Raises StorageUnavailable."""

    async def sweep(self, table: str) -> int:
        """Of one table what is too old, in batches; how many rows went."""
        rule, done = RULES[table], 0
        if isinstance(rule, Months):
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
        number: int = await self._pool.fetchval(statement_of(table, rule))
        return number

    @store_method
    async def _months(self, table: str, months: int) -> int:
        """Partitions whose every day is too old, and such rows of the default one."""
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock(hashtext('evertalk.partitions'))")
            dropped = await connection.fetchval("SELECT drop_months($1, $2)", MONTHS_OF[table], months)
            rest = await connection.fetchval(
                f"""WITH gone AS (DELETE FROM {MONTHS_OF[table]}_other WHERE {PARTITIONED[table]}
                      < date_trunc('month', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'
                        - make_interval(months => $1) RETURNING 1) SELECT count(*) FROM gone""",
                months,
            )
        return int(dropped) + int(rest)

    @store_method
    async def list_idle_sessions(self, days: int, *, limit: int = 20) -> list[int]:
        """Conversations that hold words and were last used longer ago, of nobody on hold."""
        rows = await self._pool.fetch(
            """SELECT s.id FROM session_list l JOIN sessions s ON s.id = l.id
                WHERE l.last_active_at < now() - make_interval(days => $1)
                  AND s.last_active_at < now() - make_interval(days => $1) AND s.next_turn - 1 > s.erased_turn
                  AND s.party_id NOT IN (SELECT held_parties()) ORDER BY l.last_active_at LIMIT $2""",
            days, limit,
        )  # fmt: skip
        return [row["id"] for row in rows]


def statement_of(table: str, rule: Sweep) -> str:
    verb = f"UPDATE {table} {rule.instead}" if rule.instead else f"DELETE FROM {table}"
    return f"""WITH old AS (
      SELECT {rule.key} FROM {table} WHERE {condition_of(rule)} LIMIT {BATCH}
    ), done AS (
      {verb.replace("{{}}", "{}")} WHERE ({rule.key}) IN (SELECT {rule.key} FROM old) RETURNING 1
    ) SELECT count(*) FROM done"""


def condition_of(rule: Sweep, *, grace: int = 0) -> str:
    where = rule.where.format(age=f"interval '{rule.days + grace} days'")
    return f"{where}{_NOT_HELD[rule.whose]}"


_NOT_HELD = {
    "": "",
    "session": " AND session_id NOT IN (SELECT held_sessions())",
    "party": " AND party_id NOT IN (SELECT held_parties())",
}
