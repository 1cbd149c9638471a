"""What the dashboard's pages cost among very many conversations: `python -m tests.bench.dashboard [--json]`.

Each page is read from a database of `--sessions` conversations, one of which has `--entries` messages, and by
turns from one of a thousand; what is told is the median of the ratios of such pairs. Both lie on disk under
`--folder` and are removed afterwards; with `--keep` they stay there, and the next run reads them again. A
million of both takes some minutes (a quarter of an hour beside other work) and 7 GB; what it does meanwhile
is told on the side.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import math
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg

from shared.adapters.embedded import EmbeddedServers
from shared.adapters.embedded.postgres import EmbeddedPostgres
from shared.adapters.postgres.dashboard.memory_queries import MemoryInsights, NoteQuery
from shared.adapters.postgres.dashboard.people_queries import PeopleInsights, PeopleQuery
from shared.adapters.postgres.dashboard.read_models import Insights, SessionQuery, write_cursor
from shared.adapters.postgres.dashboard.read_models_sql import SORTS
from shared.adapters.postgres.db.migrate import migrate
from shared.adapters.postgres.db.pool import open_pool
from tests.bench.dashboard_seed import public_id, seed
from web.dashboard.money import session_cells
from web.rest.files import csv_line

FEW = 1000
PAGE = 50
FAR_PAGE = 10_000
AIM = 1.2
WARM_UP = 3
TRIES = range(3, 31)
TRIED_MS = 30.0
"""So long a read is tried again for its fastest: what takes less than a millisecond is soon disturbed."""
SHEETS = 3
Read = Callable[["House"], Awaitable[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """One seeded database, and where in it the pages are looked for."""

    pool: asyncpg.Pool[asyncpg.Record]
    insights: Insights
    middle: UUID
    longest: UUID
    person: str
    fold: int
    rare: str
    cursors: Mapping[str, str]


async def fill(url: str, *, sessions: int, entries: int) -> None:
    await migrate(url)
    pool = await open_pool(url, size=2)
    await seed(pool, sessions=sessions, longest=sessions // 2 + 1, entries=entries)
    await pool.close()


async def house_of(url: str, *, sessions: int) -> House:
    await migrate(url)
    pool = await open_pool(url, size=2)
    middle, longest = sessions // 2 + 3, sessions // 2 + 1
    person = await pool.fetchval(
        "SELECT display_name FROM contacts WHERE display_name <> '' AND id >= $1 ORDER BY id LIMIT 1", middle
    )
    fold = await pool.fetchval(
        "SELECT id FROM compactions WHERE session_id = $1 ORDER BY id OFFSET 55 LIMIT 1", longest
    )
    far = min(FAR_PAGE * PAGE, sessions // 2)
    return House(
        pool=pool,
        insights=Insights(pool),
        middle=await public_id(pool, middle),
        longest=await public_id(pool, longest),
        person=person,
        fold=fold or 2**62,
        rare=f"number {middle * 2654435761 % 4294967296:x}",
        cursors={
            sort: await _cursor_at(pool, sort, far) for column in SORTS for sort in (column, f"-{column}")
        },
    )


_JOINS = {
    "p": ("contacts p", "p.id = s.contact_id"),
    "a": ("agents a", "a.id = s.agent_id"),
    "t": ("session_totals t", "t.session_id = s.id"),
    "live": (
        "LATERAL session_state(s.id, s.answered_turn, s.next_turn, s.leased_by, s.troubled_at) live", "true",
    ),
}  # fmt: skip


async def _cursor_at(pool: asyncpg.Pool[asyncpg.Record], sort: str, row: int) -> str:
    """As if somebody had turned all the pages before; the far page is then found by its cursor alone."""
    order, way = SORTS[sort.removeprefix("-")], "DESC" if sort.startswith("-") else "ASC"
    tie = "p.id" if "person" in sort else "s.id"
    rows = "session_list" if order.listed else "sessions"
    joined = "".join(
        f" JOIN {table} ON {on}" for alias, (table, on) in _JOINS.items() if f"{alias}." in order.key
    )
    statement = f"""SELECT {order.key}::text AS key, s.id FROM {rows} s {joined}
        ORDER BY {order.key} {way}, {tie} {way} OFFSET $1 LIMIT 1"""
    async with pool.acquire() as connection:
        await connection.execute("SET statement_timeout = 0; SET work_mem = '512MB'")
        found = await connection.fetchrow(statement, row, timeout=600)
        await connection.execute("SET statement_timeout = 9000; RESET work_mem")
    assert found is not None
    return write_cursor(sort, found["key"], found["id"])


def _listed(**how: Any) -> Read:
    return lambda house: house.insights.load_sessions(SessionQuery(**how))


def _far(sort: str) -> Read:
    return lambda house: house.insights.load_sessions(SessionQuery(sort=sort, cursor=house.cursors[sort]))


def reads() -> Mapping[str, Read]:
    """Every kind of page, by its name."""
    return {
        "first_page": _listed(),
        **{
            f"first_page_by_{sort}": _listed(sort=sort) for column in SORTS for sort in (column, f"-{column}")
        },
        "far_page": _far("-active"),
        **{f"far_page_by_{sort}": _far(sort) for column in SORTS for sort in (column, f"-{column}")},
        "search_name": lambda house: house.insights.load_sessions(SessionQuery(search=house.person)),
        "search_part_of_name": lambda house: house.insights.load_sessions(
            SessionQuery(search=house.person[-6:])
        ),
        "search_first_letters": _listed(search="zo"),
        "search_usual_name": _listed(search="maria"),
        "search_id": lambda house: house.insights.load_sessions(SessionQuery(search=str(house.middle)[:8])),
        "filter_channel": _listed(channel="telegram"),
        "filter_problem": _listed(state="problem"),
        "filter_near_limit": _listed(min_pct=90),
        "filter_filling": _listed(min_pct=70),
        "notes": lambda house: MemoryInsights(house.pool).load_notes(NoteQuery()),
        "notes_usual_word": lambda house: MemoryInsights(house.pool).load_notes(NoteQuery(search="coffee")),
        "notes_rare_word": lambda house: MemoryInsights(house.pool).load_notes(NoteQuery(search=house.rare)),
        "people": lambda house: PeopleInsights(house.pool).load_people(PeopleQuery()),
        "people_usual_name": lambda house: PeopleInsights(house.pool).load_people(
            PeopleQuery(search="maria")
        ),
        "people_one": lambda house: PeopleInsights(house.pool).load_people(PeopleQuery(search=house.person)),
        "session_page": lambda house: house.insights.load_session(house.middle),
        "messages_page": lambda house: house.insights.load_messages(house.middle),
        "long_session_messages": lambda house: house.insights.load_messages(house.longest),
        "long_session_old_messages": lambda house: house.insights.load_messages(
            house.longest, before=(60, 1)
        ),
        "long_session_page": lambda house: house.insights.load_session(house.longest),
        "long_session_summaries": lambda house: house.insights.load_compactions(house.longest),
        "long_session_old_summaries": lambda house: house.insights.load_compactions(
            house.longest, before=house.fold
        ),
        "overview": lambda house: house.insights.load_overview(),
        "long_session_calls": lambda house: house.insights.load_context_audit(house.longest),
        "long_session_old_calls": lambda house: house.insights.load_context_audit(
            house.longest, before=(60, 1)
        ),
    }


async def rows_per_second(house: House, most: int) -> float:
    """Lines of the sheet, as they are sent; of a short one again and again, until there are as many."""
    began, lines = time.perf_counter(), 0
    while lines < most:
        async with aclosing(house.insights.iterate_sessions(SessionQuery())) as sheet:
            async for rows in sheet:
                lines += len([csv_line(session_cells(row)) for row in rows])
                if lines >= most:
                    break
    return lines / (time.perf_counter() - began)


async def compare_sheets(few: House, many: House, most: int) -> dict[str, Any]:
    """By turns, and of each its fastest."""
    pairs = [(await rows_per_second(few, most), await rows_per_second(many, most)) for _ in range(SHEETS)]
    before, after = max(rate for rate, _ in pairs), max(rate for _, rate in pairs)
    return {
        "sheet_ratio": round(before / after, 2),
        "sheet_rows_per_second": round(after),
        "sheet_rows_per_second_of_few": round(before),
    }


async def compare(few: House, many: House, *, rounds: int) -> dict[str, Any]:
    pages = {}
    for name, read in reads().items():
        pairs = [await _pair(read, few, many) for _ in range(rounds + WARM_UP)][WARM_UP:]
        pages[name] = {
            "ratio": round(statistics.median(after / before for before, after in pairs), 2),
            "few_ms": round(statistics.median(before for before, _ in pairs), 2),
            "many_ms": round(statistics.median(after for _, after in pairs), 2),
        }
    return pages


async def _pair(read: Read, few: House, many: House) -> tuple[float, float]:
    """By turns, and of each its fastest: what else the machine does only ever adds."""
    before, after, spent = math.inf, math.inf, 0.0
    for tries in range(TRIES.stop):
        if tries >= TRIES.start and spent >= TRIED_MS:
            break
        turn = await _ms(read, few), await _ms(read, many)
        before, after, spent = min(before, turn[0]), min(after, turn[1]), spent + min(turn)
    return before, after


async def _ms(read: Read, house: House) -> float:
    began = time.perf_counter()
    await read(house)
    return (time.perf_counter() - began) * 1000


@asynccontextmanager
async def houses(folder: Path, *, sessions: int, entries: int) -> AsyncIterator[tuple[House, House, float]]:
    servers = EmbeddedServers(folder / "servers", durable=False)
    await servers.start()
    opened: list[House] = []
    try:
        assert servers.postgres is not None
        began = time.monotonic()
        for name, count, log in (("few", min(FEW, sessions), min(FEW, entries)), ("many", sessions, entries)):
            url = await _filled(servers.postgres, name, sessions=count, entries=log)
            opened.append(await house_of(url, sessions=count))
            # As a process that has been running for a while: the ledger of the day is counted once.
            await opened[-1].insights.load_overview()
        yield opened[0], opened[1], round(time.monotonic() - began, 1)
    finally:
        for house in opened:
            await house.pool.close()
        await servers.stop()


async def _filled(postgres: EmbeddedPostgres, database: str, *, sessions: int, entries: int) -> str:
    """Named when it is complete: one of an earlier run is whole, or is not there."""
    admin = await asyncpg.connect(postgres.url("postgres"))
    try:
        if not await admin.fetchval("SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", database):
            await admin.execute("DROP DATABASE IF EXISTS unfinished")
            await admin.execute("CREATE DATABASE unfinished")
            await fill(postgres.url("unfinished"), sessions=sessions, entries=entries)
            await admin.execute(f"ALTER DATABASE unfinished RENAME TO {database}")
    finally:
        await admin.close()
    return postgres.url(database)


@contextmanager
def place_of(folder: Path, *, kept_as: str = "") -> Iterator[Path]:
    if kept_as:
        kept = folder / kept_as
        kept.mkdir(parents=True, exist_ok=True)
        yield kept
        return
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="evb-", dir=folder, ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)
        yield Path(name)


async def measure(folder: Path, *, sessions: int, entries: int, rounds: int, rows: int) -> dict[str, Any]:
    async with houses(folder, sessions=sessions, entries=entries) as (few, many, seconds):
        pages = await compare(few, many, rounds=rounds)
        sheets = await compare_sheets(few, many, rows)
        return {
            "sessions": sessions,
            "entries": entries,
            "seeding_seconds": seconds,
            "worst_ratio": max(page["ratio"] for page in pages.values()),
            "above_aim": [name for name, page in pages.items() if page["ratio"] > AIM]
            + ["sheet"] * (sheets["sheet_ratio"] > AIM),
            **sheets,
            "pages": pages,
        }


def as_table(found: Mapping[str, Any]) -> str:
    lines = [
        f"{name:34} {page['ratio']:6} {page['few_ms']:9} {page['many_ms']:9}"
        for name, page in found["pages"].items()
    ]
    facts = [f"{name} {value}" for name, value in found.items() if name != "pages"]
    return "\n".join([*facts, f"{'page':34} {'ratio':>6} {'few ms':>9} {'many ms':>9}", *lines])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--sessions", type=int, default=1_000_000)
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--rows", type=int, default=50_000, help="of the sheet")
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()), help="on a disk with room"
    )
    parser.add_argument("--keep", action="store_true", help="leave both there, and read those of last time")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    kept_as = f"dashboard-{given.sessions}-{given.entries}" if given.keep else ""
    with place_of(given.folder, kept_as=kept_as) as folder:
        found = asyncio.run(
            measure(
                folder,
                sessions=given.sessions,
                entries=given.entries,
                rounds=given.rounds,
                rows=given.rows,
            )
        )
    print(json.dumps(found, indent=1) if given.json else as_table(found))


if __name__ == "__main__":
    main()
