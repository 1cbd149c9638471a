"""Slices of the day's money: this process spends them without touching the row that all share."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import asyncpg

from shared.adapters.postgres.db.pool import store_method
from shared.adapters.postgres.turns import slice_sql as sql
from shared.core.session.turns import Caps
from shared.core.values.money import Shortage

Kind = Literal["known", "visitors"]
KEEP_SECONDS = 10.0
"""So long turns are begun from a slice; then another takes its place, and it ends with its last turn."""
DRAIN_SECONDS = 60.0
"""A slice whose turns have not ended by then is closed: the shared row holds what they have set aside."""
LOOK_SECONDS = 5.0
"""So often somebody looks for slices whose process is gone."""
SHARE = 4
"""Of what is left, one part in so many is shared out among the processes."""
MOST_CALLS = 256
LEAST_CALLS = 8
"""A slice that would pay for less is not taken: near a cap each call asks the shared row itself."""
ROOM = 2
"""A claim may cost so many times the most that one cost lately; a larger one asks the shared row."""


@dataclass(slots=True, kw_only=True)
class BudgetSlice:
    id: int
    left_micro: int
    taken_at: float
    near_cap: bool
    held: dict[int, int] = field(default_factory=dict)
    """By reservation."""


@dataclass(slots=True, kw_only=True)
class KindBudget:
    current: BudgetSlice | None = None
    draining: list[BudgetSlice] = field(default_factory=list)
    largest_micro: int = 0
    was_used: bool = False

    @property
    def slices(self) -> Sequence[BudgetSlice]:
        return [*self.draining, *([self.current] if self.current else ())]


@dataclass(slots=True, kw_only=True)
class SliceHold:
    """What one claim may take of each budget; nobody else here takes it meanwhile."""

    parts: Mapping[Kind, tuple[BudgetSlice, int]]

    @property
    def row(self) -> list[int | None]:
        """Slice and most micro-dollars for a known person, and the same for an anonymous visitor."""
        row: list[int | None] = []
        for kind in ("known", "visitors"):
            part = self.parts.get(kind)
            row += [None, None] if part is None else [part[0].id, part[1]]
        return row


class Allowance:
    """What is held here is never more than the slices were granted; the rows of reservations are the truth.

    A slice whose process died, or was too slow, is closed by whoever comes by: what its turns have set aside
    is then held by the shared row, and no claim can be made from it any more.
    """

    def __init__(
        self,
        pool: asyncpg.Pool[asyncpg.Record],
        *,
        taken: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`taken` is told of each slice as soon as the database has it."""
        self._pool = pool
        self._taken = taken
        self._clock = clock
        self._budgets: dict[Kind, KindBudget] = {"known": KindBudget(), "visitors": KindBudget()}
        self._looked_at = float("-inf")

    # -- while turns run; nothing of this waits ---------------------------------------------------------

    def hold(self) -> SliceHold:
        parts: dict[Kind, tuple[BudgetSlice, int]] = {}
        for kind, budget in self._budgets.items():
            one = budget.current
            if one is None or self._clock() - one.taken_at > DRAIN_SECONDS:
                continue
            most = min(one.left_micro, ROOM * budget.largest_micro)
            if most > 0:
                one.left_micro -= most
                parts[kind] = one, most
        return SliceHold(parts=parts)

    def release_hold(self, hold: SliceHold) -> None:
        """Nothing was taken of it."""
        for one, most in hold.parts.values():
            one.left_micro += most

    def record_claim(
        self, hold: SliceHold, row: Mapping[str, Any] | asyncpg.Record, *, anonymous: bool
    ) -> bool:
        """What the claim says it took; whether the cap behind its slice is nearly reached."""
        self.release_hold(hold)
        kind: Kind = "visitors" if anonymous else "known"
        budget, amount = self._budgets[kind], row["reserved_micro"]
        budget.was_used |= amount > 0
        budget.largest_micro = max(amount, budget.largest_micro * 9 // 10)
        part = hold.parts.get(kind)
        if part is None or not amount:
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
        """A call has ended; where nobody knows what was paid, all that was held counts as spent here."""
        for one in self._find_slices(reservation_id):
            amount = one.held.pop(reservation_id or 0)
            one.left_micro += amount - (amount if micro is None else micro)

    def _find_slices(self, reservation_id: int | None) -> list[BudgetSlice]:
        budgets = self._budgets.values()
        return [one for budget in budgets for one in budget.slices if reservation_id in one.held]

    def count_held_micro(self, reservation_id: int) -> int:
        return sum(one.held[reservation_id] for one in self._find_slices(reservation_id))

    def lower_reservation(self, reservation_id: int, micro: int) -> None:
        """What was to be raised was refused elsewhere."""
        for one in self._find_slices(reservation_id):
            one.left_micro += one.held[reservation_id] - micro
            one.held[reservation_id] = micro

    async def raise_reservation(self, reservation_id: int, micro: int, *, caps: Caps) -> list[Shortage]:
        """Room for more in the slice that has this reservation; near a cap the slice grows by just that.

        What the caps refuse is returned, and nothing was changed.
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
        async with self._pool.acquire() as connection, connection.transaction():
            scopes = await connection.fetchval(sql.OPEN, one.id)
            if scopes is None:
                return []  # closed: the shared row has the reservation, and is asked for the whole
            days = await connection.fetch(sql.DAYS_OF, one.id)
            refused = [
                Shortage(
                    scope=day["scope"].partition(":")[0],
                    cap_micro=cap,
                    spent_micro=day["spent_micro"],
                    held_micro=max(0, day["reserved_micro"] - sum(one.held.values())),
                )
                for day in days
                if (cap := _cap_of(day["scope"], caps)) is not None
                and day["spent_micro"] + day["reserved_micro"] + micro > cap
            ]
            if not refused:
                await connection.execute(sql.GROW, one.id, micro)
        if not refused:
            one.left_micro += micro
        return refused

    # -- with each beat ---------------------------------------------------------------------------------

    @store_method
    async def renew_slices(self, *, worker_id: int, caps: Caps) -> None:
        """Take slices for what is going on, and give those back that nobody needs."""
        now = self._clock()
        if caps.total is not None and now - self._looked_at > LOOK_SECONDS:
            self._looked_at = now
            await self.close_lapsed_slices()
        for kind, budget in self._budgets.items():
            due = budget.current is None or now - budget.current.taken_at > KEEP_SECONDS
            if due and (budget.current is not None or budget.was_used):
                await self._renew(kind, budget, worker_id, caps)
            for one in list(budget.draining):
                if not one.held or now - one.taken_at > DRAIN_SECONDS or budget.current is None:
                    await self._close(one.id)
                    budget.draining.remove(one)

    async def _renew(self, kind: Kind, budget: KindBudget, worker_id: int, caps: Caps) -> None:
        fresh = await self._take(kind, budget, worker_id, caps) if budget.was_used else None
        if budget.current is not None:
            budget.draining.append(budget.current)
        budget.current, budget.was_used = fresh, False

    async def _take(self, kind: Kind, budget: KindBudget, worker_id: int, caps: Caps) -> BudgetSlice | None:
        if caps.total is None or not budget.largest_micro:
            return None
        names = ["total"] if kind == "known" or caps.visitors_hour is None else ["total", "visitors"]
        async with self._pool.acquire() as connection, connection.transaction():
            days = await connection.fetch(sql.LOCK_DAYS, names, caps.timezone)
            left = min(
                _cap_of(day["scope"], caps, unset=0) - day["spent_micro"] - day["reserved_micro"]
                for day in days
            )
            granted = min(left // (SHARE * days[0]["processes"]), MOST_CALLS * budget.largest_micro)
            if granted < LEAST_CALLS * budget.largest_micro:
                return None
            id_ = await connection.fetchval(
                sql.TAKE, worker_id, days[0]["day"], [day["scope"] for day in days], granted
            )
        self._taken()
        near = any(
            day["warned_at"] is None and day["spent_micro"] * 100 >= _cap_of(day["scope"], caps, unset=0) * 80
            for day in days
        )
        return BudgetSlice(id=id_, left_micro=granted, taken_at=self._clock(), near_cap=near) if id_ else None

    @store_method
    async def release_all(self) -> None:
        """This process begins no turn any more."""
        for budget in self._budgets.values():
            for one in budget.slices:
                await self._close(one.id)
            budget.current, budget.draining = None, []

    @store_method
    async def close_lapsed_slices(self) -> int:
        """Slices of processes that are gone, or that have not said for a while that they live; how many."""
        found = await self._pool.fetch(sql.LAPSED)
        for row in found:
            await self._close(row["id"])
        return len(found)

    async def _close(self, slice_id: int) -> None:
        """Each statement sees what was committed before it: first no claim can be made from the slice, then
        nothing is held by it any more, and then what was spent of it is final.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            if await connection.fetchval(sql.OPEN, slice_id) is None:
                return
            held = await connection.fetchval(sql.MOVE_HELD, slice_id)
            spent = await connection.fetchval(sql.SPENT, slice_id)
            await connection.execute(sql.CLOSE, slice_id, held, spent)


def _cap_of(scope: str, caps: Caps, unset: int | None = None) -> Any:
    cap = caps.total if scope == "total" else caps.visitors_hour
    return unset if cap is None else cap
