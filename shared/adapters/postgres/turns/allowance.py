"""Budget slices: parts of the daily budget that one process spends without updating the shared rows.

There is one slice for known persons and one for anonymous visitors.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import asyncpg

from shared.adapters.postgres.db.pool import PoolStore, store_method
from shared.adapters.postgres.turns import slice_sql as sql
from shared.core.session.turns import Caps
from shared.core.values.money import Shortage

Kind = Literal["known", "visitors"]
KEEP_SECONDS = 10.0
"""Seconds for which turns begin from a slice.

Then a new one replaces it, and it closes after its last turn.
"""
DRAIN_SECONDS = 60.0
"""Seconds after which a slice is closed although turns run; the shared row then holds their reservations."""
LOOK_SECONDS = 5.0
"""Seconds between two checks for slices whose process died."""
SHARE = 4
"""Divisor of the remaining budget: a quarter of it is divided among the processes."""
IDLE_SHARE = 8
"""Divisor of the remaining budget for the slice of an idle process."""
MOST_CALLS = 256
"""Maximum number of calls that a slice of a busy process pays for."""
IDLE_CALLS = 128
"""Calls that a slice of an idle process pays for; sixty claims at once may each hold `ROOM` calls."""
LEAST_CALLS = 8
"""Calls below which no slice is taken; near a cap, each call uses the shared rows."""
ROOM = 2
"""Multiple of the largest recent cost up to which a claim uses the slice.

A larger one uses the shared rows.
"""


@dataclass(slots=True, kw_only=True)
class BudgetSlice:
    """Part of a budget that this process may spend.

    Amounts are in micro-dollars, times are loop-independent seconds.
    """

    id: int
    left_micro: int
    taken_at: float
    near_cap: bool
    fresh_until: float
    """Time at which the hour or day of the slice ends."""
    is_idle: bool = False
    held: dict[int, int] = field(default_factory=dict)
    """Reserved micro-dollars by reservation id."""


@dataclass(slots=True, kw_only=True)
class KindBudget:
    """Slices of one kind of person, and the largest recent cost of a call."""

    current: BudgetSlice | None = None
    draining: list[BudgetSlice] = field(default_factory=list)
    largest_micro: int = 0
    was_used: bool = False
    looked_at: float = float("-inf")
    """Time of the last check whether an idle process may have a slice."""

    @property
    def slices(self) -> Sequence[BudgetSlice]:
        """Slices that are closing, then the current one if there is one."""
        return [*self.draining, *([self.current] if self.current else ())]


@dataclass(slots=True, kw_only=True)
class SliceHold:
    """Part of the slices that one claim holds until it knows its cost."""

    parts: Mapping[Kind, tuple[BudgetSlice, int]]

    @property
    def row(self) -> list[int | None]:
        """Slice id and maximum micro-dollars for a known person, then for a visitor; None without a slice."""
        row: list[int | None] = []
        for kind in ("known", "visitors"):
            part = self.parts.get(kind)
            row += [None, None] if part is None else [part[0].id, part[1]]
        return row


class PostgresTokenReservations(PoolStore):
    """Store of token reservations for calls with unknown prices. It raises StorageUnavailable."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], *, timezone: str) -> None:
        super().__init__(pool)
        self._timezone = timezone

    @store_method
    async def reserve_tokens(
        self,
        *,
        cap: int,
        input_tokens: int,
        output_tokens: int,
        least_output: int,
        weight: int,
        free_models: Sequence[str],
    ) -> tuple[int, int] | None:
        """Reserve tokens.

        Returns the reservation's id and the maximum output, or None if less than `least_output` is left.
        Models in `free_models` do not count.
        """
        asked = sql.RESERVE_TOKENS(
            timezone=self._timezone, cap=cap, input_tokens=input_tokens, output_tokens=output_tokens,
            least_output=min(output_tokens, least_output), weight=weight,
        )  # fmt: skip
        row = await self._pool.fetchrow(*asked)
        if row is not None and not row["is_there"]:
            await self._pool.execute(
                *sql.MAKE_TOKEN_DAY(
                    timezone=self._timezone,
                    weight=weight,
                    free_models=list(free_models),
                )
            )
            row = await self._pool.fetchrow(*asked)
        if row is None or row["id"] is None:
            return None
        return row["id"], row["output_tokens"]

    @store_method
    async def settle_tokens(self, reservation_id: int, tokens: int) -> None:
        """Replace a reservation by the tokens that its call used; repeating it has no effect."""
        await self._pool.execute(*sql.SETTLE_TOKENS(reservation_id=reservation_id, tokens=tokens))


class Allowance(PoolStore):
    """Budget slices of this process, of which it spends no more than was granted.

    Reservations are authoritative. Any process closes a slice whose process died or was too slow: the
    shared row then holds its reservations, and no claim uses the slice any more.
    """

    def __init__(
        self,
        pool: asyncpg.Pool[asyncpg.Record],
        *,
        taken: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create the allowance without slices; `taken` is called when the database has granted one."""
        super().__init__(pool)
        self._taken = taken
        self._clock = clock
        self._budgets: dict[Kind, KindBudget] = {"known": KindBudget(), "visitors": KindBudget()}
        self._looked_at = float("-inf")

    # -- used while turns run; nothing of this waits -----------------------------------------------------

    def hold(self) -> SliceHold:
        """Hold a part of each usable slice for a claim whose cost is not known yet."""
        parts: dict[Kind, tuple[BudgetSlice, int]] = {}
        for kind, budget in self._budgets.items():
            one = budget.current
            if one is None or self._is_stale(one):
                continue
            most = min(one.left_micro, ROOM * budget.largest_micro)
            if most > 0:
                one.left_micro -= most
                parts[kind] = one, most
        return SliceHold(parts=parts)

    def release_hold(self, hold: SliceHold) -> None:
        """Return an unused hold to its slices."""
        for one, most in hold.parts.values():
            one.left_micro += most

    def record_claim(
        self, hold: SliceHold, row: Mapping[str, Any] | asyncpg.Record, *, anonymous: bool
    ) -> bool:
        """Replace the hold of a claim by what its `row` says that it reserved in a slice.

        Returns whether the daily cap of that slice's budget is nearly reached.
        """
        self.release_hold(hold)
        kind: Kind = "visitors" if anonymous else "known"
        budget, amount = self._budgets[kind], row["reserved_micro"]
        budget.was_used |= amount > 0
        budget.largest_micro = max(amount, budget.largest_micro * 9 // 10)
        part = hold.parts.get(kind)
        if part is None or not amount or row["refused_scope"] is not None:
            return False
        one, most = part
        if row["slice_id"] != one.id:
            if amount <= most and budget.current is one:
                budget.current = None  # somebody has closed it
            return False
        one.left_micro -= amount
        one.held[row["reservation_id"]] = amount
        return one.near_cap

    def settle(self, reservation_id: int | None, micro: int | None = None) -> None:
        """Settle a call at `micro` micro-dollars.

        None (unknown price) counts the whole reservation as spent.
        """
        for one in self._find_slices(reservation_id):
            amount = one.held.pop(reservation_id or 0)
            one.left_micro += amount - (amount if micro is None else micro)

    def _find_slices(self, reservation_id: int | None) -> list[BudgetSlice]:
        budgets = self._budgets.values()
        return [one for budget in budgets for one in budget.slices if reservation_id in one.held]

    def count_held_micro(self, reservation_id: int) -> int:
        """Return the micro-dollars reserved from slices under this id; 0 if there are none."""
        return sum(one.held[reservation_id] for one in self._find_slices(reservation_id))

    def lower_reservation(self, reservation_id: int, micro: int) -> None:
        """Lower a reservation to `micro` micro-dollars, after its increase was refused elsewhere."""
        for one in self._find_slices(reservation_id):
            one.left_micro += one.held[reservation_id] - micro
            one.held[reservation_id] = micro

    async def raise_reservation(self, reservation_id: int, micro: int, *, caps: Caps) -> list[Shortage]:
        """Raise a reservation to `micro` micro-dollars; near a cap the slice grows by the missing amount.

        Return the shortages if the caps refuse it, and change nothing; else an empty list.
        """
        for one in self._find_slices(reservation_id):
            more = micro - one.held[reservation_id]
            if more > one.left_micro:
                refused = await self._grow(one, more - max(0, one.left_micro), caps)
                if refused:
                    return refused
            one.left_micro -= more
            one.held[reservation_id] = micro
        return []

    async def _grow(self, one: BudgetSlice, micro: int, caps: Caps) -> list[Shortage]:
        rows = await self._pool.fetch(
            *sql.GROW(
                slice_id=one.id,
                micro=micro,
                total=caps.total,
                visitors_hour=caps.visitors_hour,
            )
        )
        if not rows:
            return []  # closed: the shared row has the reservation, and is asked for the whole
        refused = [
            Shortage(
                scope=row["scope"].partition(":")[0],
                cap_micro=row["cap"],
                spent_micro=row["spent_micro"],
                held_micro=max(0, row["reserved_micro"] - sum(one.held.values())),
            )
            for row in rows
            if row["scope"] is not None
        ]
        if not refused:
            one.left_micro += micro
        return refused

    # -- called with each heartbeat ----------------------------------------------------------------------

    @store_method
    async def renew_slices(self, *, worker_id: int, caps: Caps, call_micro: int = 0) -> None:
        """Take slices for turns that run or may begin, and return those that are not needed.

        With `call_micro`, the maximum cost of a first call, a process has a slice before its first claim.
        """
        now = self._clock()
        if caps.total is not None and now - self._looked_at > LOOK_SECONDS:
            self._looked_at = now
            await self.close_lapsed_slices()
        for kind, budget in self._budgets.items():
            budget.largest_micro = budget.largest_micro or call_micro
            if not budget.was_used:
                await self._keep_idle_slice(kind, budget, worker_id, caps)
            elif budget.current is None or self._is_due(budget, budget.current):
                await self._renew(kind, budget, worker_id, caps)
            for one in list(budget.draining):
                if not one.held or now - one.taken_at > DRAIN_SECONDS or budget.current is None:
                    await self._close(one.id)
                    budget.draining.remove(one)

    def _is_stale(self, one: BudgetSlice) -> bool:
        now = self._clock()
        return now >= one.fresh_until or (not one.is_idle and now - one.taken_at > DRAIN_SECONDS)

    def _is_due(self, budget: KindBudget, one: BudgetSlice) -> bool:
        """Return whether a busy process should replace this slice: old, nearly used up, stale or idle."""
        used_up = one.left_micro < LEAST_CALLS * ROOM * budget.largest_micro
        return used_up or one.is_idle or self._is_stale(one) or self._clock() - one.taken_at > KEEP_SECONDS

    async def _renew(self, kind: Kind, budget: KindBudget, worker_id: int, caps: Caps) -> None:
        fresh = await self._take(kind, budget, worker_id, caps, is_idle=not budget.was_used)
        if budget.current is not None:
            budget.draining.append(budget.current)
        budget.current, budget.was_used = fresh, False

    async def _keep_idle_slice(self, kind: Kind, budget: KindBudget, worker_id: int, caps: Caps) -> None:
        """Keep a small slice ready for the next turns, unless other processes may need the money.

        Every `KEEP_SECONDS` the shared rows are read; they are locked only when a slice is taken or returned.
        """
        one, now = budget.current, self._clock()
        is_ready = one is not None and one.is_idle and not self._is_stale(one)
        if caps.total is None or not budget.largest_micro or now - budget.looked_at <= KEEP_SECONDS:
            return
        if one is not None and not one.is_idle and now - one.taken_at <= KEEP_SECONDS:
            return
        budget.looked_at = now
        names, limits = _scopes_of(kind, caps)
        # A slice is kept until the rest of the budget is half of what taking it would require.
        least = one.left_micro if one is not None and is_ready else LEAST_CALLS * budget.largest_micro
        share = IDLE_SHARE // 2 if is_ready else IDLE_SHARE
        has_room = await self._pool.fetchval(
            *sql.HAS_ROOM(
                names=names,
                timezone=caps.timezone,
                limits=limits,
                share=share,
                least=least,
            )
        )
        if has_room and is_ready:
            return
        if has_room:
            await self._renew(kind, budget, worker_id, caps)
        elif one is not None:
            budget.draining.append(one)
            budget.current = None

    async def _take(
        self, kind: Kind, budget: KindBudget, worker_id: int, caps: Caps, *, is_idle: bool
    ) -> BudgetSlice | None:
        if caps.total is None or not budget.largest_micro:
            return None
        names, limits = _scopes_of(kind, caps)
        share, calls = (IDLE_SHARE, IDLE_CALLS) if is_idle else (SHARE, MOST_CALLS)
        largest, now = budget.largest_micro, self._clock()
        asked = sql.TAKE(
            names=names, timezone=caps.timezone, limits=limits, share=share, most=calls * largest,
            least=LEAST_CALLS * largest, worker_id=worker_id,
        )  # fmt: skip
        row = await self._pool.fetchrow(*asked)
        if row is not None and not row["are_there"]:
            await self._pool.execute(*sql.MAKE_DAYS(names=names, timezone=caps.timezone))
            row = await self._pool.fetchrow(*asked)
        if row is None or row["id"] is None:
            return None
        self._taken()
        return BudgetSlice(
            id=row["id"], left_micro=row["granted_micro"], taken_at=now, near_cap=row["near_cap"],
            fresh_until=now + row["seconds"], is_idle=is_idle,
        )  # fmt: skip

    @store_method
    async def release_all(self) -> None:
        """Close all slices, since this process begins no more turns."""
        for budget in self._budgets.values():
            for one in budget.slices:
                await self._close(one.id)
            budget.current, budget.draining = None, []

    @store_method
    async def close_lapsed_slices(self) -> int:
        """Close slices of processes that died or sent no heartbeat; return their number."""
        found = await self._pool.fetch(sql.LAPSED)
        for row in found:
            await self._close(row["id"])
        return len(found)

    async def _close(self, slice_id: int) -> None:
        await self._pool.execute(*sql.CLOSE(slice_id=slice_id))


def _scopes_of(kind: Kind, caps: Caps) -> tuple[list[str], list[int | None]]:
    """Return the names of the shared budgets in which calls of this kind count, and their caps."""
    if kind == "known" or caps.visitors_hour is None:
        return ["total"], [caps.total]
    return ["total", "visitors"], [caps.total, caps.visitors_hour]
