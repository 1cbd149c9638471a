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

SETTLED = "now() - interval '15 min'"
"""Time up to which rows are settled at the first read; longer than any transaction may last."""
TIME_GUARD_SECONDS = 60.0
"""Seconds that a transaction may take from its begin to its first row, whose time is that of the begin."""
MOST_HELD = 1_000
"""Maximum changing rows whose keys are remembered; above it, rows after them are read again."""
Sums: TypeAlias = Mapping[str, float]


def _of(column: str, *values: str) -> dict[str, str]:
    return {value: f"count(*) FILTER (WHERE {column} = '{value}')" for value in values}


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Table whose rows are ordered by a growing column, and the sums over it."""

    table: str
    sums: Mapping[str, str]
    age: str = "created_at"
    place: str = "id"
    kind: str = "bigint"
    changing: str = "false"
    """Condition of rows whose contribution to the sums may still change."""
    key: Mapping[str, str] = field(default_factory=lambda: {"id": "bigint"})
    """Key columns by which such rows are found again, with their types."""
    base: str = ""
    """Statement that returns the same sums over all rows, including deleted ones; "" without one."""

    @property
    def start(self) -> str:
        """Position before all rows, as text: 0 or minus infinity."""
        return "0" if self.kind == "bigint" else "-infinity"

    @property
    def guard_seconds(self) -> float:
        """Seconds after which no transaction can insert a row before a position that was read."""
        return STATEMENT_SECONDS if self.kind == "bigint" else TIME_GUARD_SECONDS

    @property
    def first_edge(self) -> str:
        """Statement for the last position that is settled by age."""
        newest = f"(SELECT max({self.place}) FROM {self.table} WHERE {self.age} < {SETTLED})"
        if self.place == self.age:
            newest = SETTLED
        return f"SELECT to_json(coalesce({newest}, '{self.start}'::{self.kind})::text)::text"

    @property
    def look(self) -> Named:
        """Select sums of rows after `after`, in three parts.

        They are settled and changing rows up to `place`, later rows, and rows of `keys`.
        """
        place = f":place::text::{self.kind}"
        told = ", ".join(f"'{name}', {term}" for name, term in self.sums.items())
        keys = f"json_agg(json_build_array({', '.join(self.key)}))"
        found = " AND ".join(
            f"x.{name} = (k.value ->> {at})::{kind}" for at, (name, kind) in enumerate(self.key.items())
        )
        newest = "now()" if self.kind != "bigint" else f"(SELECT max({self.place}) FROM {self.table})"
        return Named(f"""SELECT json_build_object(
  'newest', coalesce({newest}, '{self.start}'::{self.kind})::text,
  'oldest_writer', pg_snapshot_xmin(pg_current_snapshot())::text,
  'next_writer', pg_snapshot_xmax(pg_current_snapshot())::text,
  'new', (SELECT json_object_agg(part, json_build_object('sums', sums, 'keys', keys)) FROM (
      SELECT CASE WHEN {self.place} > {place} THEN 'later' WHEN {self.changing} THEN 'changing'
                  ELSE 'settled' END AS part,
             json_build_object({told}) AS sums,
             CASE WHEN bool_and({self.place} <= {place} AND ({self.changing})) THEN {keys} END AS keys
        FROM {self.table} WHERE {self.place} > :after::text::{self.kind} GROUP BY 1) n),
  'held', (SELECT json_object_agg(part, json_build_object('sums', sums, 'keys', keys)) FROM (
      SELECT CASE WHEN {self.changing} THEN 'changing' ELSE 'settled' END AS part,
             json_build_object({told}) AS sums, {keys} AS keys
        FROM jsonb_array_elements(:keys::text::jsonb) k JOIN {self.table} x ON {found}
       GROUP BY 1) h))::text""")

    @property
    def whole(self) -> Named:
        """Statement for all sums by `base`, and for those of the rows after the position `after`, given as
        text.

        It returns one JSON object: `all` and `tail`, each with the sums by name. Only for a source with
        `base`.
        """
        told = ", ".join(f"'{name}', {term}" for name, term in self.sums.items())
        later = f"{self.place} > :after::text::{self.kind}"
        tail = f"SELECT json_build_object({told}) FROM {self.table} WHERE {later}"
        return Named(f"SELECT json_build_object('all', ({self.base}), 'tail', ({tail}))::text")


_TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "cost_micro")
SOURCES: Mapping[str, Source] = {
    "spend": Source(
        table="usage",
        age="at",
        sums={
            **{name: f"coalesce(sum({name}), 0)" for name in _TOKENS},
            "cost_unknown_calls": "count(*) FILTER (WHERE cost_micro IS NULL)",
        },
        base=f"""SELECT json_build_object({", ".join(
            f"'{name}', coalesce(sum({name}), 0)" for name in (*_TOKENS, "cost_unknown_calls")
        )}) FROM session_totals""",
    ),
    "calls": Source(
        table="turn_context_audit",
        sums={
            "prunes": "count(*) FILTER (WHERE prune_triggered)",
            "overflows": "count(*) FILTER (WHERE overflow_rejected)",
            "prompts": "count(coalesce(reported_input_tokens, estimated_input_tokens_after_prune))",
            "prompt_tokens": "coalesce(sum(coalesce(reported_input_tokens, "
            "estimated_input_tokens_after_prune)), 0)",
        },
    ),
    "compactions": Source(
        table="compactions", sums={"summaries": "count(*) FILTER (WHERE kind IN ('summary', 'digest'))"}
    ),
    "sessions": Source(table="sessions", sums={"all": "count(*)"}),
    "jobs": Source(table="jobs", sums={"all": "count(*)"}),
    "flushes": Source(
        table="flushes",
        sums=_of("outcome", "running", "saved", "nothing", "failed"),
        changing="outcome = 'running' AND created_at > now() - interval '1 day'",
    ),
    "turns": Source(
        table="turns", age="opened_at", place="opened_at", kind="timestamptz",
        sums=_of("state", "open", "claimed", "answered", "stopped", "refused", "failed"),
        changing="ended_at IS NULL", key={"session_id": "bigint", "turn_no": "bigint"},
    ),
    "steps": Source(
        table="turn_steps", age="at", place="at", kind="timestamptz",
        sums=_of("status", "intent", "done", "failed", "unknown"),
        changing="status = 'intent' AND at > now() - interval '1 day'",
        key={"session_id": "bigint", "turn_no": "bigint", "call_id": "text"},
    ),
}  # fmt: skip


Keys: TypeAlias = tuple[list[Any], ...]
_NOTHING: Mapping[str, Any] = {"sums": {}, "keys": []}


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
            edge = str(await read_page(self.pool, source.first_edge))
            if source.base:
                found = await read_page(self.pool, *source.whole(after=edge))
                kept = _Kept(sums=_added(found["all"], found["tail"], sign=-1), edge=edge, next_edge=edge)
                self._kept[name] = kept
                return dict(found["all"])
            kept = _Kept(sums=dict.fromkeys(source.sums, 0), edge=source.start, next_edge=edge)
        total, self._kept[name] = await self._look(source, kept)
        return total

    async def _look(self, source: Source, kept: _Kept) -> tuple[Sums, _Kept]:
        """Return all sums, and the state for the next read."""
        found = await read_page(
            self.pool,
            *source.look(after=kept.edge, place=kept.next_edge, keys=json.dumps(kept.held)),
        )
        new, held = found["new"] or {}, found["held"] or {}
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
