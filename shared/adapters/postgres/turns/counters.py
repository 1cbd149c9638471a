"""Sums over a whole history, counted once and then added to: each look reads only what is new.

Rows of the last quarter of an hour are read again each time, for they may still be changed, and those of a
transaction that is under way are not seen yet. Older ones are settled and become part of what is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, TypeAlias

from shared.adapters.postgres.db.page_read import read_page
from shared.adapters.postgres.db.pool import STATEMENT_SECONDS, Pool

SETTLED = "now() - interval '15 min'"
"""Longer than any transaction here may last."""
Sums: TypeAlias = Mapping[str, float]


def _of(column: str, *values: str) -> dict[str, str]:
    return {value: f"count(*) FILTER (WHERE {column} = '{value}')" for value in values}


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A table whose rows are placed by a growing column, and what is summed up of them."""

    table: str
    sums: Mapping[str, str]
    age: str = "created_at"
    place: str = "id"
    kind: str = "bigint"
    changing: str = ""
    """Rows that match may change however old they are: they and what is newer are not settled."""
    base: str = ""
    """Says the same of all rows, those included that are gone."""

    @property
    def start(self) -> str:
        return "0" if self.kind == "bigint" else "-infinity"

    @property
    def edge(self) -> str:
        """The last place that is settled, and never one before the given."""
        newest = f"(SELECT max({self.place}) FROM {self.table} WHERE {self.age} < {SETTLED})"
        if self.place == self.age:
            newest = SETTLED
        held, less = f"NULL::{self.kind}", "1" if self.kind == "bigint" else "interval '1 us'"
        if self.changing:
            held = f"(SELECT min({self.place}) FROM {self.table} WHERE {self.changing})"
        return (
            f"SELECT to_json(greatest($1::text::{self.kind}, least({newest}, {held} - {less}))::text)::text"
        )

    @property
    def since(self) -> str:
        """Between two places, and after the second."""
        row = f"({self._row} {self.place} >"
        return f"""SELECT json_build_object(
            'settled', {row} $1::text::{self.kind} AND {self.place} <= $2::text::{self.kind}),
            'tail', {row} $2::text::{self.kind}))::text"""

    @property
    def whole(self) -> str:
        """All by the base, and what of it came after a place."""
        tail = f"{self._row} {self.place} > $1::text::{self.kind}"
        return f"SELECT json_build_object('all', ({self.base}), 'tail', ({tail}))::text"

    @property
    def _row(self) -> str:
        told = ", ".join(f"'{name}', {term}" for name, term in self.sums.items())
        return f"SELECT json_build_object({told}) FROM {self.table} WHERE"


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
    "links": Source(
        table="links", sums={"summaries": "count(*) FILTER (WHERE kind IN ('summary', 'digest'))"}
    ),
    "sessions": Source(table="sessions", sums={"all": "count(*)"}),
    "jobs": Source(table="jobs", sums={"all": "count(*)"}),
    "flushes": Source(
        table="flushes",
        sums=_of("outcome", "running", "saved", "nothing", "failed"),
        changing=f"outcome = 'running' AND created_at > now() - interval '1 day' AND created_at < {SETTLED}",
    ),
    "turns": Source(
        table="turns", age="opened_at", place="opened_at", kind="timestamptz",
        sums=_of("state", "open", "claimed", "answered", "stopped", "refused", "failed"),
        changing="ended_at IS NULL",
    ),
    "steps": Source(
        table="turn_steps", age="at", place="at", kind="timestamptz",
        sums=_of("status", "intent", "done", "failed", "unknown"),
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Kept:
    edge: str
    sums: Sums


@dataclass(slots=True)
class RunningSums:
    """Not for two callers at a time."""

    pool: Pool
    _kept: dict[str, _Kept] = field(default_factory=dict)

    async def read(self, *, whole: bool = False) -> Mapping[str, Sums]:
        """By source; `whole` counts all anew, for some rows may have been erased since."""
        return {name: await self._of(name, source, whole=whole) for name, source in SOURCES.items()}

    async def _of(self, name: str, source: Source, *, whole: bool) -> Sums:
        kept = None if whole else self._kept.get(name)
        edge = str(await read_page(self.pool, source.edge, kept.edge if kept else source.start))
        if source.base and kept is None:
            found = await read_page(self.pool, source.whole, edge)
            self._kept[name] = _Kept(edge, _added(found["all"], found["tail"], sign=-1))
            return dict(found["all"])
        if kept is None:
            kept = _Kept(source.start, dict.fromkeys(source.sums, 0))
        found = await read_page(self.pool, source.since, kept.edge, edge)
        self._kept[name] = _Kept(edge, _added(kept.sums, found["settled"]))
        return _added(self._kept[name].sums, found["tail"])


def _added(one: Sums, other: Mapping[str, Any], *, sign: int = 1) -> Sums:
    return {name: value + sign * other[name] for name, value in one.items()}


_TODAY = {"spent": "coalesce(sum(cost_micro), 0)", "unknown": "count(*) FILTER (WHERE cost_micro IS NULL)",
          "calls": "count(*)"}  # fmt: skip
_TOLD = ", ".join(f"'{name}', {term}" for name, term in _TODAY.items())
_ROWS = f"SELECT json_build_object({_TOLD}) FROM usage WHERE at >= $2::text::timestamptz AND id >"
_SPENT = f"""
SELECT json_build_object(
  'day', date_trunc('day', now() AT TIME ZONE $1) AT TIME ZONE $1,
  'newest', coalesce((SELECT max(id) FROM usage), 0),
  'oldest_writer', pg_snapshot_xmin(pg_current_snapshot())::text,
  'next_writer', pg_snapshot_xmax(pg_current_snapshot())::text,
  'settled', ({_ROWS} $3::bigint AND id <= $4::bigint),
  'tail', ({_ROWS} $4::bigint))::text
"""


@dataclass(frozen=True, slots=True)
class _Day:
    """Sums up to `edge`; the rows up to `next_edge` are added when nobody can be writing one any more."""

    day: str = "infinity"
    sums: Sums = field(default_factory=lambda: dict.fromkeys(_TODAY, 0))
    edge: int = 0
    next_edge: int = 0
    next_writer: int = 0
    seen_at: float = float("-inf")

    def is_settled(self, oldest_writer: int, now: float) -> bool:
        """A number is taken just before its writer is known as one, by the same statement."""
        return oldest_writer >= self.next_writer and now - self.seen_at > STATEMENT_SECONDS


class SpentToday:
    """What the ledger says of this day; who asks again reads only what came since.

    Rows of the ledger stay as they are: all up to a number are settled once everybody who wrote then is done.
    """

    def __init__(self, pool: Pool, timezone: str, *, clock: Callable[[], float] = monotonic) -> None:
        self._pool = pool
        self._timezone = timezone
        self._clock = clock
        self._kept = _Day()

    async def read(self) -> Sums:
        """`spent` in micro-dollars, `unknown` and `calls`. Two at a time do each other no harm."""
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
            self._pool, _SPENT, self._timezone, kept.day, kept.edge, kept.next_edge
        )
        return found
