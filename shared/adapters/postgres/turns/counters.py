"""Sums over whole tables, counted once and then updated: each read covers only new rows.

A row is settled once every transaction that was writing when it was first read has ended: all rows up to it
are then visible and join the kept sums. Rows that may still change are remembered by their keys and read
again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, TypeAlias

from shared.adapters.postgres.db.page_read import read_page
from shared.adapters.postgres.db.pool import STATEMENT_SECONDS, Named, Pool, PoolStore

TIME_GUARD_SECONDS = 60.0
"""Seconds that a transaction may take from its begin to its first row, whose time is that of the begin."""
MOST_HELD = 1_000
"""Maximum changing rows whose keys are remembered; above it, rows after them are read again."""
Sums: TypeAlias = Mapping[str, float]
Keys: TypeAlias = tuple[list[Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """Sums up to `edge`; rows up to `next_edge` are added when no transaction can insert any more there."""

    sums: Sums
    edge: str
    next_edge: str
    next_writer: int = 0
    seen_at: float = float("-inf")
    held: Keys = ()
    """Keys of rows up to `edge` that may still change; `sums` excludes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Table whose rows are ordered by a growing column, the position, and statements for sums over it."""

    names: tuple[str, ...]
    """Names of the sums."""
    edge: Named
    """Select the last position that is settled by its age of 15 minutes; no transaction may last as long."""
    look: Named
    """Select sums of rows after the position `after`, in parts: rows up to `place`, and later ones.

    If the source `changes`, rows that may still change are a separate part, with their keys. Sums of the rows
    with the keys `keys` are then selected as well.
    """
    by_time: bool = False
    """Whether the position is a time; else it is an id."""
    changes: bool = False
    """Whether rows may change after they were written."""
    whole: Named | None = None
    """Select `all`, the sums over all rows including deleted ones, and `tail`, those after `after`."""

    @property
    def start(self) -> str:
        """Position before all rows, as text: 0 or minus infinity."""
        return "-infinity" if self.by_time else "0"

    @property
    def guard_seconds(self) -> float:
        """Seconds after which no transaction can insert a row before a position that was read."""
        return TIME_GUARD_SECONDS if self.by_time else STATEMENT_SECONDS

    def ask(self, kept: _Kept) -> tuple[str, *tuple[object, ...]]:
        """Return the call of `look` for what the kept sums do not contain."""
        held = {"keys": json.dumps(kept.held)} if self.changes else {}
        return self.look(after=kept.edge, place=kept.next_edge, **held)


_SPEND = Named("""
SELECT json_build_object(
  'newest', coalesce((SELECT max(id) FROM usage), 0)::text,
  'oldest_writer', pg_snapshot_xmin(pg_current_snapshot())::text,
  'next_writer', pg_snapshot_xmax(pg_current_snapshot())::text,
  'new', (SELECT json_object_agg(part, json_build_object('sums', sums)) FROM (
      SELECT CASE WHEN id > :place::text::bigint THEN 'later' ELSE 'settled' END AS part,
             json_build_object('input_tokens', coalesce(sum(input_tokens), 0),
                               'output_tokens', coalesce(sum(output_tokens), 0),
                               'cache_read_tokens', coalesce(sum(cache_read_tokens), 0),
                               'cache_write_tokens', coalesce(sum(cache_write_tokens), 0),
                               'cost_micro', coalesce(sum(cost_micro), 0),
                               'cost_unknown_calls', count(*) FILTER (WHERE cost_micro IS NULL)) AS sums
        FROM usage WHERE id > :after::text::bigint GROUP BY 1) n))::text
""")
"""Select sums of the tokens and the cost of calls."""
_CALLS = Named("""
SELECT json_build_object(
  'newest', coalesce((SELECT max(id) FROM turn_context_audit), 0)::text,
  'oldest_writer', pg_snapshot_xmin(pg_current_snapshot())::text,
  'next_writer', pg_snapshot_xmax(pg_current_snapshot())::text,
  'new', (SELECT json_object_agg(part, json_build_object('sums', sums)) FROM (
      SELECT CASE WHEN id > :place::text::bigint THEN 'later' ELSE 'settled' END AS part,
             json_build_object('prunes', count(*) FILTER (WHERE prune_triggered),
                               'overflows', count(*) FILTER (WHERE overflow_rejected),
                               'prompts', count(prompt_tokens),
                               'prompt_tokens', coalesce(sum(prompt_tokens), 0)) AS sums
        FROM (SELECT *, coalesce(reported_input_tokens, estimated_input_tokens_after_prune) AS prompt_tokens
                FROM turn_context_audit) c
       WHERE id > :after::text::bigint GROUP BY 1) n))::text
""")
"""Select the numbers of requests, with a prune or an overflow, and the sum of their tokens."""
_COMPACTIONS = Named("""
SELECT json_build_object(
  'newest', coalesce((SELECT max(id) FROM compactions), 0)::text,
  'oldest_writer', pg_snapshot_xmin(pg_current_snapshot())::text,
  'next_writer', pg_snapshot_xmax(pg_current_snapshot())::text,
  'new', (SELECT json_object_agg(part, json_build_object('sums', sums)) FROM (
      SELECT CASE WHEN id > :place::text::bigint THEN 'later' ELSE 'settled' END AS part,
             json_build_object('summaries', count(*) FILTER (WHERE kind IN ('summary', 'digest'))) AS sums
        FROM compactions WHERE id > :after::text::bigint GROUP BY 1) n))::text
""")
"""Select the number of summaries and digests."""
_SESSIONS = Named("""
SELECT json_build_object(
  'newest', coalesce((SELECT max(id) FROM sessions), 0)::text,
  'oldest_writer', pg_snapshot_xmin(pg_current_snapshot())::text,
  'next_writer', pg_snapshot_xmax(pg_current_snapshot())::text,
  'new', (SELECT json_object_agg(part, json_build_object('sums', sums)) FROM (
      SELECT CASE WHEN id > :place::text::bigint THEN 'later' ELSE 'settled' END AS part,
             json_build_object('all', count(*)) AS sums
        FROM sessions WHERE id > :after::text::bigint GROUP BY 1) n))::text
""")
"""Select the number of sessions."""
_JOBS = Named("""
SELECT json_build_object(
  'newest', coalesce((SELECT max(id) FROM jobs), 0)::text,
  'oldest_writer', pg_snapshot_xmin(pg_current_snapshot())::text,
  'next_writer', pg_snapshot_xmax(pg_current_snapshot())::text,
  'new', (SELECT json_object_agg(part, json_build_object('sums', sums)) FROM (
      SELECT CASE WHEN id > :place::text::bigint THEN 'later' ELSE 'settled' END AS part,
             json_build_object('all', count(*)) AS sums
        FROM jobs WHERE id > :after::text::bigint GROUP BY 1) n))::text
""")
"""Select the number of jobs."""
_FLUSHES = Named("""
SELECT json_build_object(
  'newest', coalesce((SELECT max(id) FROM flushes), 0)::text,
  'oldest_writer', pg_snapshot_xmin(pg_current_snapshot())::text,
  'next_writer', pg_snapshot_xmax(pg_current_snapshot())::text,
  'new', (SELECT json_object_agg(part, json_build_object('sums', sums, 'keys', keys)) FROM (
      SELECT CASE WHEN id > :place::text::bigint THEN 'later'
                  WHEN outcome = 'running' AND created_at > now() - interval '1 day' THEN 'changing'
                  ELSE 'settled' END AS part,
             json_build_object('running', count(*) FILTER (WHERE outcome = 'running'),
                               'saved', count(*) FILTER (WHERE outcome = 'saved'),
                               'nothing', count(*) FILTER (WHERE outcome = 'nothing'),
                               'failed', count(*) FILTER (WHERE outcome = 'failed')) AS sums,
             json_agg(json_build_array(id)) FILTER (
               WHERE id <= :place::text::bigint
                 AND outcome = 'running' AND created_at > now() - interval '1 day') AS keys
        FROM flushes WHERE id > :after::text::bigint GROUP BY 1) n),
  'held', (SELECT json_object_agg(part, json_build_object('sums', sums, 'keys', keys)) FROM (
      SELECT CASE WHEN outcome = 'running' AND created_at > now() - interval '1 day' THEN 'changing'
                  ELSE 'settled' END AS part,
             json_build_object('running', count(*) FILTER (WHERE outcome = 'running'),
                               'saved', count(*) FILTER (WHERE outcome = 'saved'),
                               'nothing', count(*) FILTER (WHERE outcome = 'nothing'),
                               'failed', count(*) FILTER (WHERE outcome = 'failed')) AS sums,
             json_agg(json_build_array(id)) AS keys
        FROM jsonb_array_elements(:keys::text::jsonb) k
        JOIN flushes x ON x.id = (k.value ->> 0)::bigint
       GROUP BY 1) h))::text
""")
"""Select the number of flushes by outcome; one that runs may still change, for a day."""
_TURNS = Named("""
SELECT json_build_object(
  'newest', now()::text,
  'oldest_writer', pg_snapshot_xmin(pg_current_snapshot())::text,
  'next_writer', pg_snapshot_xmax(pg_current_snapshot())::text,
  'new', (SELECT json_object_agg(part, json_build_object('sums', sums, 'keys', keys)) FROM (
      SELECT CASE WHEN opened_at > :place::text::timestamptz THEN 'later'
                  WHEN ended_at IS NULL THEN 'changing'
                  ELSE 'settled' END AS part,
             json_build_object('open', count(*) FILTER (WHERE state = 'open'),
                               'claimed', count(*) FILTER (WHERE state = 'claimed'),
                               'answered', count(*) FILTER (WHERE state = 'answered'),
                               'stopped', count(*) FILTER (WHERE state = 'stopped'),
                               'refused', count(*) FILTER (WHERE state = 'refused'),
                               'failed', count(*) FILTER (WHERE state = 'failed')) AS sums,
             json_agg(json_build_array(session_id, turn_no)) FILTER (
               WHERE opened_at <= :place::text::timestamptz AND ended_at IS NULL) AS keys
        FROM turns WHERE opened_at > :after::text::timestamptz GROUP BY 1) n),
  'held', (SELECT json_object_agg(part, json_build_object('sums', sums, 'keys', keys)) FROM (
      SELECT CASE WHEN ended_at IS NULL THEN 'changing' ELSE 'settled' END AS part,
             json_build_object('open', count(*) FILTER (WHERE state = 'open'),
                               'claimed', count(*) FILTER (WHERE state = 'claimed'),
                               'answered', count(*) FILTER (WHERE state = 'answered'),
                               'stopped', count(*) FILTER (WHERE state = 'stopped'),
                               'refused', count(*) FILTER (WHERE state = 'refused'),
                               'failed', count(*) FILTER (WHERE state = 'failed')) AS sums,
             json_agg(json_build_array(session_id, turn_no)) AS keys
        FROM jsonb_array_elements(:keys::text::jsonb) k
        JOIN turns x ON x.session_id = (k.value ->> 0)::bigint AND x.turn_no = (k.value ->> 1)::bigint
       GROUP BY 1) h))::text
""")
"""Select the number of turns by state; one that has not ended may still change."""
_STEPS = Named("""
SELECT json_build_object(
  'newest', now()::text,
  'oldest_writer', pg_snapshot_xmin(pg_current_snapshot())::text,
  'next_writer', pg_snapshot_xmax(pg_current_snapshot())::text,
  'new', (SELECT json_object_agg(part, json_build_object('sums', sums, 'keys', keys)) FROM (
      SELECT CASE WHEN at > :place::text::timestamptz THEN 'later'
                  WHEN status = 'intent' AND at > now() - interval '1 day' THEN 'changing'
                  ELSE 'settled' END AS part,
             json_build_object('intent', count(*) FILTER (WHERE status = 'intent'),
                               'done', count(*) FILTER (WHERE status = 'done'),
                               'failed', count(*) FILTER (WHERE status = 'failed'),
                               'unknown', count(*) FILTER (WHERE status = 'unknown')) AS sums,
             json_agg(json_build_array(session_id, turn_no, call_id)) FILTER (
               WHERE at <= :place::text::timestamptz
                 AND status = 'intent' AND at > now() - interval '1 day') AS keys
        FROM turn_steps WHERE at > :after::text::timestamptz GROUP BY 1) n),
  'held', (SELECT json_object_agg(part, json_build_object('sums', sums, 'keys', keys)) FROM (
      SELECT CASE WHEN status = 'intent' AND at > now() - interval '1 day' THEN 'changing'
                  ELSE 'settled' END AS part,
             json_build_object('intent', count(*) FILTER (WHERE status = 'intent'),
                               'done', count(*) FILTER (WHERE status = 'done'),
                               'failed', count(*) FILTER (WHERE status = 'failed'),
                               'unknown', count(*) FILTER (WHERE status = 'unknown')) AS sums,
             json_agg(json_build_array(session_id, turn_no, call_id)) AS keys
        FROM jsonb_array_elements(:keys::text::jsonb) k
        JOIN turn_steps x ON x.session_id = (k.value ->> 0)::bigint AND x.turn_no = (k.value ->> 1)::bigint
         AND x.call_id = (k.value ->> 2)::text
       GROUP BY 1) h))::text
""")
"""Select the number of calls of tools by status; one that runs may still change, for a day."""
_QUARTER_AGO = Named("SELECT to_json((now() - interval '15 min')::text)::text")
_WHOLE_SPEND = Named("""
SELECT json_build_object(
  'all', (
    SELECT json_build_object('input_tokens', coalesce(sum(input_tokens), 0),
                             'output_tokens', coalesce(sum(output_tokens), 0),
                             'cache_read_tokens', coalesce(sum(cache_read_tokens), 0),
                             'cache_write_tokens', coalesce(sum(cache_write_tokens), 0),
                             'cost_micro', coalesce(sum(cost_micro), 0),
                             'cost_unknown_calls', coalesce(sum(cost_unknown_calls), 0))
      FROM session_totals),
  'tail', (
    SELECT json_build_object('input_tokens', coalesce(sum(input_tokens), 0),
                             'output_tokens', coalesce(sum(output_tokens), 0),
                             'cache_read_tokens', coalesce(sum(cache_read_tokens), 0),
                             'cache_write_tokens', coalesce(sum(cache_write_tokens), 0),
                             'cost_micro', coalesce(sum(cost_micro), 0),
                             'cost_unknown_calls', count(*) FILTER (WHERE cost_micro IS NULL))
      FROM usage WHERE id > :after::text::bigint))::text
""")
"""Select the sums of all calls, from the totals of the sessions, and those of the calls after a position."""

SOURCES: Mapping[str, Source] = {
    "spend": Source(
        names=(
            "input_tokens",
            "output_tokens",
            "cache_read_tokens",
            "cache_write_tokens",
            "cost_micro",
            "cost_unknown_calls",
        ),
        edge=Named("""
SELECT to_json(coalesce((
  SELECT max(id) FROM usage WHERE at < now() - interval '15 min'), 0)::text)::text
"""),
        look=_SPEND,
        whole=_WHOLE_SPEND,
    ),
    "calls": Source(
        names=("prunes", "overflows", "prompts", "prompt_tokens"),
        edge=Named("""
SELECT to_json(coalesce((
  SELECT max(id) FROM turn_context_audit WHERE created_at < now() - interval '15 min'), 0)::text)::text
"""),
        look=_CALLS,
    ),
    "compactions": Source(
        names=("summaries",),
        edge=Named("""
SELECT to_json(coalesce((
  SELECT max(id) FROM compactions WHERE created_at < now() - interval '15 min'), 0)::text)::text
"""),
        look=_COMPACTIONS,
    ),
    "sessions": Source(
        names=("all",),
        edge=Named("""
SELECT to_json(coalesce((
  SELECT max(id) FROM sessions WHERE created_at < now() - interval '15 min'), 0)::text)::text
"""),
        look=_SESSIONS,
    ),
    "jobs": Source(
        names=("all",),
        edge=Named("""
SELECT to_json(coalesce((
  SELECT max(id) FROM jobs WHERE created_at < now() - interval '15 min'), 0)::text)::text
"""),
        look=_JOBS,
    ),
    "flushes": Source(
        names=("running", "saved", "nothing", "failed"),
        edge=Named("""
SELECT to_json(coalesce((
  SELECT max(id) FROM flushes WHERE created_at < now() - interval '15 min'), 0)::text)::text
"""),
        look=_FLUSHES,
        changes=True,
    ),
    "turns": Source(
        names=("open", "claimed", "answered", "stopped", "refused", "failed"),
        edge=_QUARTER_AGO,
        look=_TURNS,
        by_time=True,
        changes=True,
    ),
    "steps": Source(
        names=("intent", "done", "failed", "unknown"),
        edge=_QUARTER_AGO,
        look=_STEPS,
        by_time=True,
        changes=True,
    ),
}


_NOTHING: Mapping[str, Any] = {"sums": {}, "keys": []}


@dataclass(slots=True)
class RunningSums:
    """Reader of the sums; it must not be called concurrently."""

    pool: Pool
    clock: Callable[[], float] = monotonic
    _kept: dict[str, _Kept] = field(default_factory=dict)

    async def read(self, *, whole: bool = False) -> Mapping[str, Sums]:
        """Return the sums by source; `whole` counts all rows again, since some may have been erased."""
        return {name: await self._of(name, source, whole=whole) for name, source in SOURCES.items()}

    async def _of(self, name: str, source: Source, *, whole: bool) -> Sums:
        kept = None if whole else self._kept.get(name)
        if kept is None:
            edge = str(await read_page(self.pool, *source.edge()))
            if source.whole is not None:
                found = await read_page(self.pool, *source.whole(after=edge))
                kept = _Kept(sums=_added(found["all"], found["tail"], sign=-1), edge=edge, next_edge=edge)
                self._kept[name] = kept
                return dict(found["all"])
            kept = _Kept(sums=dict.fromkeys(source.names, 0), edge=source.start, next_edge=edge)
        total, self._kept[name] = await self._look(source, kept)
        return total

    async def _look(self, source: Source, kept: _Kept) -> tuple[Sums, _Kept]:
        """Return all sums, and the state for the next read."""
        found = await read_page(self.pool, *source.ask(kept))
        new, held = found["new"] or {}, found.get("held") or {}
        settled = _add_all(kept.sums, (_part(new, "settled"), _part(held, "settled")))
        changing = (_part(new, "changing"), _part(held, "changing"))
        total = _add_all(settled, (*changing, _part(new, "later")))
        keys = tuple(key for part in changing for key in part["keys"])
        now = self.clock()
        is_settled = (
            int(found["oldest_writer"]) >= kept.next_writer
            and now - kept.seen_at > source.guard_seconds
            and len(keys) <= MOST_HELD
        )
        if not is_settled:
            return total, kept
        return total, _Kept(
            sums=settled, edge=kept.next_edge, next_edge=found["newest"],
            next_writer=int(found["next_writer"]), seen_at=now, held=keys,
        )  # fmt: skip


def _part(parts: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = parts.get(name, _NOTHING)
    return found


def _add_all(sums: Sums, parts: Iterable[Mapping[str, Any]]) -> Sums:
    for part in parts:
        sums = {name: value + part["sums"].get(name, 0) for name, value in sums.items()}
    return sums


def _added(one: Sums, other: Mapping[str, Any], *, sign: int = 1) -> Sums:
    return {name: value + sign * other[name] for name, value in one.items()}


_TODAY = ("spent", "unknown", "calls")
_SPENT = Named("""
SELECT json_build_object(
  'day', date_trunc('day', now() AT TIME ZONE :timezone) AT TIME ZONE :timezone,
  'newest', coalesce((SELECT max(id) FROM usage), 0),
  'oldest_writer', pg_snapshot_xmin(pg_current_snapshot())::text,
  'next_writer', pg_snapshot_xmax(pg_current_snapshot())::text,
  'settled', (
    SELECT json_build_object('spent', coalesce(sum(cost_micro), 0),
                             'unknown', count(*) FILTER (WHERE cost_micro IS NULL), 'calls', count(*))
      FROM usage
     WHERE at >= :day::text::timestamptz AND id > :edge::bigint AND id <= :next_edge::bigint),
  'tail', (
    SELECT json_build_object('spent', coalesce(sum(cost_micro), 0),
                             'unknown', count(*) FILTER (WHERE cost_micro IS NULL), 'calls', count(*))
      FROM usage WHERE at >= :day::text::timestamptz AND id > :next_edge::bigint))::text
""")
"""Spending after an edge, divided at the position before which running transactions may still write."""


@dataclass(frozen=True, slots=True)
class _Day:
    """Sums up to `edge`; rows up to `next_edge` are added when no transaction can insert any more there."""

    day: str = "infinity"
    sums: Sums = field(default_factory=lambda: dict.fromkeys(_TODAY, 0))
    edge: int = 0
    next_edge: int = 0
    next_writer: int = 0
    seen_at: float = float("-inf")

    def is_settled(self, oldest_writer: int, now: float) -> bool:
        """Return whether all rows up to `next_edge` are settled.

        All writers seen with it must have ended, and the ids' delay have passed.
        """
        return oldest_writer >= self.next_writer and now - self.seen_at > STATEMENT_SECONDS


class SpentToday(PoolStore):
    """Today's spending by the ledger, read incrementally.

    Ledger rows never change: all up to an id are settled once the transactions of that time have ended.
    """

    def __init__(self, pool: Pool, timezone: str, *, clock: Callable[[], float] = monotonic) -> None:
        super().__init__(pool)
        self._timezone = timezone
        self._clock = clock
        self._kept = _Day()

    async def read(self) -> Sums:
        """Return today's `spent` in micro-dollars, `unknown` (calls without a price) and `calls`.

        Concurrent calls are safe.
        """
        kept, found = self._kept, await self._since(self._kept)
        if found["day"] != kept.day:
            kept = _Day(day=found["day"])
            found = await self._since(kept)
        now, settled = self._clock(), _added(kept.sums, found["settled"])
        if kept.is_settled(int(found["oldest_writer"]), now):
            self._kept = _Day(
                kept.day, settled, kept.next_edge, found["newest"], int(found["next_writer"]), now
            )
        return _added(settled, found["tail"])

    async def _since(self, kept: _Day) -> dict[str, Any]:
        found: dict[str, Any] = await read_page(
            self._pool,
            *_SPENT(
                timezone=self._timezone,
                day=kept.day,
                edge=kept.edge,
                next_edge=kept.next_edge,
            ),
        )
        return found
