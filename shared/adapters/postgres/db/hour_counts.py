"""Counts of `hourly_stats`, updated by what was added or ended since the last call, each row once.

Triggers insert a row into `hour_turns` for each turn that ends, and into `hour_jobs` for each job, in the
same transaction; counting deletes these rows. Rows of the ledger, summaries and hand-overs are only added:
`hour_marks` has the number up to which they are counted, and which of the newest are. So the result does not
depend on clocks, nor on the order of commits. Each call is one transaction with one snapshot, so a worker
that dies has counted nothing.

An hour without a row is counted from its tables, in the snapshot in which all waiting rows are counted.
Messages, people, answers, errors and first tokens belong to the hour in which the person wrote; other counts
to the hour of the event. What an erasure or the retention deletes stays counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic
from typing import Any

from shared.adapters.postgres.db.pool import Connection, Named, Pool, Record, store_method
from shared.core.ops.latency import BUCKETS

ROWS_AT_ONCE = 2_000
"""Maximum rows of one table that one transaction counts; the next transaction counts more at once."""
OPEN_AT_ONCE = 8
"""Open turns whose messages one call counts, in rotation; each turn is counted in full when it has ended."""
WHOLE_HOURS_SECONDS = 2.0
"""Seconds after which a transaction counts no further hour without a row; the next transaction does."""
WHOLE_HOUR_SECONDS = 40.0
"""Maximum seconds for counting one hour from its tables, which only an hour without a row needs."""
PEOPLE_DAYS = 3
"""Days for which the people of an hour are stored, longer than a worker of an older version may count it."""
LEDGER = "cost_micro", "input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens"
"""Columns of `usage` that are summed per hour: cost in micro-dollars, and tokens by kind."""
CALLS = ("calls", "unknown_calls", *LEDGER)
"""Columns of `hourly_stats` about calls of models; `unknown_calls` counts those without a known cost."""
ADDED = ("messages", "people", "new_today", "answers", "errors", *CALLS, "summaries", "handovers")
"""Columns of `hourly_stats` that a count increases by a number."""


@dataclass(slots=True)
class HourDelta:
    """Numbers to add to the row of one hour.

    `sums` has them by column, `first_tokens` by bucket of the time to the first token, and `jobs` by kind of
    job as (done, failed).
    """

    sums: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    first_tokens: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    jobs: dict[str, tuple[int, int]] = field(default_factory=dict)

    def add_job(self, kind: str, done: int, failed: int) -> None:
        """Add numbers of jobs of this kind that are done, and that have failed for good."""
        before = self.jobs.get(kind, (0, 0))
        self.jobs[kind] = (before[0] + done, before[1] + failed)


Deltas = dict[datetime, HourDelta]
"""Numbers to add, by the beginning of the hour."""


class PostgresHourCounts:
    """Counter of `hourly_stats`, whose hours begin by the clock of `timezone`. It raises StorageUnavailable.

    `crash_point` is called in the middle of a transaction; tests stop the process there.
    """

    def __init__(
        self, pool: Pool, *, timezone: str = "UTC", crash_point: Callable[[str], None] = lambda _: None
    ) -> None:
        self._pool = pool
        self._timezone = timezone
        self._crash_point = crash_point

    @store_method
    async def catch_up(self) -> bool:
        """Count one portion in one transaction; return whether there may be more.

        A portion is at most ROWS_AT_ONCE waiting rows per table; if none of the tables has more waiting, also
        hours that have no row yet. Returns False if another worker is counting.
        """
        async with self._pool.acquire() as connection, connection.transaction(isolation="repeatable_read"):
            if not await connection.fetchval(_ALONE):
                return False
            look = _Look(connection, self._timezone)
            await look.drop_foreign_rows()
            more = await look.count_new()
            self._crash_point("mid_counting")
            if not more:
                more = await look.count_uncounted_hours()
            await connection.execute(*_TOUCH(zone=self._timezone))
        return more


class _Look:
    """One counting transaction, whose statements all see the same snapshot."""

    def __init__(self, connection: Connection, zone: str) -> None:
        self._connection = connection
        self._zone = zone
        self._deltas: Deltas = defaultdict(HourDelta)
        self._people: list[tuple[datetime, int]] = []

    async def drop_foreign_rows(self) -> None:
        """Delete the rows of another time zone, and recent ones that an older version has written."""
        if await self._connection.fetchval(*_HAS_OTHER_ZONE(zone=self._zone)):
            await self._connection.execute(_FORGET_HOURS)
        await self._connection.execute(*_DROP_FOREIGN())

    async def count_new(self) -> bool:
        """Count waiting rows; return whether a portion was full, so that more may wait."""
        full = [
            await self._count_ended(),
            await self._count_open(),
            await self._count_jobs(),
            await self._count_calls(),
            await self._count_rows("compactions", "summaries", _NEW_SUMMARIES),
            await self._count_rows("handovers", "handovers", _NEW_HANDOVERS),
        ]
        await self._count_people()
        await self._add()
        await self._connection.execute(*_PRUNE_PEOPLE(limit=ROWS_AT_ONCE))
        return any(full)

    async def _count_ended(self) -> bool:
        fed = await self._connection.fetch(*_TAKE_ENDED(limit=ROWS_AT_ONCE))
        if fed:
            given = {
                name: [row[name] for row in fed] for name in ("session_id", "after_turn", "through_turn")
            }
            self._add_turns(await self._connection.fetch(*_ENDED_TURNS(zone=self._zone, **given)))
            await self._connection.execute(*_CLOSE_OPEN(**given))
        return len(fed) == ROWS_AT_ONCE

    async def _count_open(self) -> bool:
        """Count the messages of OPEN_AT_ONCE open turns, whose number may still grow."""
        rows = await self._connection.fetch(*_OPEN_TURNS(zone=self._zone, limit=OPEN_AT_ONCE))
        changed = [row for row in rows if row["messages"] != row["counted"] and row["is_kept"]]
        self._add_turns(changed)
        if changed:
            await self._connection.execute(*_KEEP_OPEN(**_columns(changed)))
        place = (rows[-1]["session_id"], rows[-1]["turn_no"]) if len(rows) == OPEN_AT_ONCE else (0, 0)
        await self._connection.execute(*_NEXT_OPEN(session_id=place[0], turn_no=place[1]))
        return False

    def _add_turns(self, rows: Iterable[Record]) -> None:
        for row in rows:
            delta = self._deltas[row["hour"]]
            delta.sums["messages"] += row["messages"] - (row["counted"] or 0)
            delta.sums["answers"] += row["is_answered"]
            delta.sums["errors"] += row["is_failed"]
            if row["bucket"] is not None:
                delta.first_tokens[row["bucket"]] += 1
            if row["messages"] and not row["counted"]:
                self._people.append((row["hour"], row["contact_id"]))

    async def _count_jobs(self) -> bool:
        rows = await self._connection.fetch(*_TAKE_JOBS(zone=self._zone, limit=ROWS_AT_ONCE))
        for row in rows:
            self._deltas[row["hour"]].add_job(row["kind"], row["done"], row["failed"])
        return len(rows) == ROWS_AT_ONCE

    async def _count_calls(self) -> bool:
        rows = await self._connection.fetch(*_NEW_CALLS(zone=self._zone, limit=ROWS_AT_ONCE))
        for row in rows:
            sums = self._deltas[row["hour"]].sums
            for name in CALLS:
                sums[name] += row[name]
        return await self._move_mark("usage", rows)

    async def _count_rows(self, source: str, name: str, new: Named) -> bool:
        """Count new rows of the table `source` in the column `name`; return whether the portion was full."""
        rows = await self._connection.fetch(*new(zone=self._zone, limit=ROWS_AT_ONCE))
        for row in rows:
            self._deltas[row["hour"]].sums[name] += row["counts"]
        return await self._move_mark(source, rows)

    async def _move_mark(self, source: str, rows: Sequence[Record]) -> bool:
        full = len(rows) == ROWS_AT_ONCE
        ids = [row["id"] for row in rows]
        await self._connection.execute(*_MOVE_MARK(source=source, ids=ids, full=full))
        return full

    async def _count_people(self) -> None:
        """Count each person once per hour, and as new in the first hour of the day in which they wrote."""
        hours = [hour for hour, _ in self._people]
        contacts = [contact for _, contact in self._people]
        for row in await self._connection.fetch(
            *_ADD_PEOPLE(zone=self._zone, hours=hours, contacts=contacts)
        ):
            self._deltas[row["hour"]].sums["people"] += row["people"]
            self._deltas[row["hour"]].sums["new_today"] += row["new_today"]
        self._people.clear()

    async def _add(self) -> None:
        """Add the numbers to the rows of their hours.

        Hours without a row are left to `count_uncounted_hours`.
        """
        rows = await self._connection.fetch(*_LOCK_HOURS(hours=sorted(self._deltas)))
        for row in rows:
            delta = self._deltas[row["hour"]]
            await self._connection.execute(
                *_ADD(
                    hour=row["hour"],
                    first_tokens=_merge_counts(row["first_tokens"], delta.first_tokens),
                    jobs=_merge_jobs(row["jobs"], delta.jobs),
                    **{name: delta.sums[name] for name in ADDED},
                )
            )
        self._deltas.clear()

    async def count_uncounted_hours(self) -> bool:
        """Count hours without a row for WHOLE_HOURS_SECONDS; return whether there may be more."""
        until = monotonic() + WHOLE_HOURS_SECONDS
        while (hour := await self._find_uncounted_hour()) is not None:
            await self._count_whole_hour(hour)
            if monotonic() > until:
                return True
        return False

    async def _find_uncounted_hour(self) -> datetime | None:
        """Return the next hour without a row; None if there is none.

        It is the oldest one after the newest row, else the one before all rows.
        """
        hour: datetime | None = await self._connection.fetchval(*_UNCOUNTED(zone=self._zone))
        if hour is not None:
            return hour
        since = await self._connection.fetchval(_SINCE)
        if since is None:
            since = await self._connection.fetchval(*_FIRST_HOUR(zone=self._zone))
            await self._connection.execute(*_SET_SINCE(since=since))
        before: datetime | None = await self._connection.fetchval(*_BEFORE_ALL(zone=self._zone, since=since))
        return before

    async def _count_whole_hour(self, hour: datetime) -> None:
        await self._connection.execute(*_SET_TIMEOUT(milliseconds=str(int(WHOLE_HOUR_SECONDS * 1000))))
        values = {"zone": self._zone, "hour": hour}
        await self._connection.execute(*COUNT_HOUR(**values), timeout=WHOLE_HOUR_SECONDS)
        await self._connection.execute(*_FORGET_OPEN_OF_HOUR(hour=hour))
        await self._connection.execute(*_KEEP_OPEN_OF_HOUR(hour=hour), timeout=WHOLE_HOUR_SECONDS)
        people = await self._connection.fetch(*_PEOPLE_OF_HOUR(hour=hour), timeout=WHOLE_HOUR_SECONDS)
        self._people = [(hour, row["contact_id"]) for row in people]
        await self._count_people()
        self._deltas.pop(hour, None)
        await self._add()
        await self._connection.execute(*_SET_PEOPLE(**values), timeout=WHOLE_HOUR_SECONDS)


def _columns(rows: Sequence[Record]) -> Mapping[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in ("session_id", "turn_no", "hour", "messages")}


def _merge_counts(counts: Sequence[int], added: Mapping[int, int]) -> list[int]:
    merged = list(counts) or [0] * (BUCKETS + 2) if added else list(counts)
    for bucket, number in added.items():
        merged[bucket] += number
    return merged


def _merge_jobs(jobs: Mapping[str, Sequence[int]], added: Mapping[str, tuple[int, int]]) -> dict[str, Any]:
    merged = {kind: [*counts] for kind, counts in jobs.items()}
    for kind, (done, failed) in added.items():
        before = merged.get(kind, [0, 0])
        merged[kind] = [before[0] + done, before[1] + failed]
    return {kind: counts for kind, counts in merged.items() if any(counts)}


_ALONE = "SELECT pg_try_advisory_xact_lock(hashtext('evertalk.hourly_stats'))"
_SET_TIMEOUT = Named("SELECT set_config('statement_timeout', :milliseconds, true)")
_KEPT_MONTHS = 24
"""Months for which the ledger is stored; earlier hours cannot be counted."""
_RECENT_HOURS = 50
"""Age of hours that a worker of an older version may still count."""
_HAS_OTHER_ZONE = Named("SELECT zone <> :zone FROM hourly_stats ORDER BY hour DESC LIMIT 1")
_FORGET_HOURS = """
WITH h AS (DELETE FROM hourly_stats), p AS (DELETE FROM hour_people), o AS (DELETE FROM hour_open)
UPDATE hour_marks SET since = NULL WHERE source = 'turns'
"""
_DROP_FOREIGN = Named(
    """
DELETE FROM hourly_stats
 WHERE hour > now() - :recent_hours * interval '1 hour' AND added_at IS DISTINCT FROM counted_at
""",
    recent_hours=_RECENT_HOURS,
)

# The rows are written by the transactions that end the turns: a row that can be seen has its turns with it.
_TAKE_ENDED = Named("""
DELETE FROM hour_turns WHERE ctid = ANY (ARRAY(SELECT ctid FROM hour_turns LIMIT :limit))
RETURNING session_id, after_turn, through_turn
""")
_ENDED_TURNS = Named("""
SELECT t.session_id, t.turn_no, date_trunc('hour', t.opened_at, :zone) AS hour, s.contact_id,
       o.messages AS counted, t.is_answered, t.is_failed, t.bucket, t.messages
  FROM unnest(:session_id::bigint[], :after_turn::bigint[], :through_turn::bigint[])
       AS f(session_id, after_turn, through_turn)
  CROSS JOIN LATERAL (
       SELECT * FROM turn_counts c
        WHERE c.session_id = f.session_id AND c.turn_no > f.after_turn AND c.turn_no <= f.through_turn
          AND c.ended_at IS NOT NULL OFFSET 0) t
  JOIN sessions s ON s.id = t.session_id
  LEFT JOIN hour_open o ON o.session_id = t.session_id AND o.turn_no = t.turn_no
""")
"""Select ended turns of a batch, with the messages that were counted before they ended.

`OFFSET 0` makes the planner look the turns up by their numbers: where most conversations are short, it reads
all turns of a conversation otherwise.
"""
_CLOSE_OPEN = Named("""
DELETE FROM hour_open o
 USING unnest(:session_id::bigint[], :after_turn::bigint[], :through_turn::bigint[])
       AS f(session_id, after_turn, through_turn)
 WHERE o.session_id = f.session_id AND o.turn_no > f.after_turn AND o.turn_no <= f.through_turn
""")
# A turn that was just counted as ended is no longer open in the same snapshot.
_OPEN_TURNS = Named("""
SELECT t.session_id, t.turn_no, t.hour, s.contact_id, o.messages AS counted,
       EXISTS (SELECT FROM hourly_stats n WHERE n.hour = t.hour) AS is_kept,
       t.is_answered, t.is_failed, t.bucket, t.messages
  FROM (SELECT c.*, date_trunc('hour', c.opened_at, :zone) AS hour FROM turn_counts c
         WHERE c.ended_at IS NULL AND (c.session_id, c.turn_no) > (
               (SELECT open_session FROM hour_marks WHERE source = 'turns'),
               (SELECT open_turn FROM hour_marks WHERE source = 'turns'))
         ORDER BY c.session_id, c.turn_no LIMIT :limit) t
  JOIN sessions s ON s.id = t.session_id
  LEFT JOIN hour_open o ON o.session_id = t.session_id AND o.turn_no = t.turn_no
 ORDER BY t.session_id, t.turn_no
""")
"""Select the next open turns after the mark, by session and turn."""
_KEEP_OPEN = Named("""
INSERT INTO hour_open (session_id, turn_no, hour, messages)
SELECT * FROM unnest(:session_id::bigint[], :turn_no::bigint[], :hour::timestamptz[], :messages::int[])
ON CONFLICT (session_id, turn_no) DO UPDATE SET messages = excluded.messages
""")
# The mark is the open turn after which the next call continues.
_NEXT_OPEN = Named("""
UPDATE hour_marks SET open_session = :session_id, open_turn = :turn_no
 WHERE source = 'turns' AND (open_session, open_turn) <> (:session_id::bigint, :turn_no::bigint)
""")
_TAKE_JOBS = Named("""
DELETE FROM hour_jobs WHERE ctid = ANY (ARRAY(SELECT ctid FROM hour_jobs LIMIT :limit))
RETURNING kind, date_trunc('hour', ended_at, :zone) AS hour, done, failed
""")


_NEW_CALLS = Named("""
SELECT x.id, date_trunc('hour', x.at, :zone) AS hour, 1 AS calls,
       (x.cost_micro IS NULL)::int AS unknown_calls,
       coalesce(x.cost_micro, 0) AS cost_micro, coalesce(x.input_tokens, 0) AS input_tokens,
       coalesce(x.cache_read_tokens, 0) AS cache_read_tokens,
       coalesce(x.cache_write_tokens, 0) AS cache_write_tokens, coalesce(x.output_tokens, 0) AS output_tokens
  FROM usage x
 WHERE x.id > (SELECT edge FROM hour_marks WHERE source = 'usage')
   AND x.id NOT IN (SELECT unnest(above) FROM hour_marks WHERE source = 'usage')
 ORDER BY x.id LIMIT :limit
""")
"""Select calls of models that are not counted: those above the edge, except counted ones."""
_NEW_SUMMARIES = Named("""
SELECT x.id, date_trunc('hour', x.created_at, :zone) AS hour,
       (x.kind IN ('summary', 'digest') AND x.trigger <> 'fork')::int AS counts
  FROM compactions x
 WHERE x.id > (SELECT edge FROM hour_marks WHERE source = 'compactions')
   AND x.id NOT IN (SELECT unnest(above) FROM hour_marks WHERE source = 'compactions')
 ORDER BY x.id LIMIT :limit
""")
"""Select compactions that are not counted, with 1 for a summary that was made here, else 0."""
_NEW_HANDOVERS = Named("""
SELECT x.id, date_trunc('hour', x.asked_at, :zone) AS hour, 1 AS counts
  FROM handovers x
 WHERE x.id > (SELECT edge FROM hour_marks WHERE source = 'handovers')
   AND x.id NOT IN (SELECT unnest(above) FROM hour_marks WHERE source = 'handovers')
 ORDER BY x.id LIMIT :limit
""")
"""Select hand-overs that are not counted."""
_GUARD_SECONDS = 10
"""Seconds from taking a row's number until its transaction counts as running; statements may take nine."""
# All numbers through the former `next_edge` are settled once each transaction that ran then has ended: one
# that is not counted by now will never be seen. After a restore the transactions are another server's.
_MOVE_MARK = Named(
    """
WITH m AS (
  SELECT *, m.above || :ids::bigint[] AS seen,
         NOT :full::boolean AND abs(extract(epoch FROM clock_timestamp() - m.next_at)) > :guard_seconds
           AND (m.next_writer <= pg_snapshot_xmin(pg_current_snapshot())
                OR m.next_writer > pg_snapshot_xmax(pg_current_snapshot())) AS is_settled
    FROM hour_marks m WHERE m.source = :source
)
UPDATE hour_marks h
   SET edge = CASE WHEN m.is_settled THEN m.next_edge ELSE m.edge END,
       above = CASE WHEN m.is_settled THEN ARRAY(SELECT x FROM unnest(m.seen) x WHERE x > m.next_edge)
                    ELSE m.seen END,
       next_edge = CASE WHEN m.is_settled THEN (SELECT greatest(m.next_edge, max(x)) FROM unnest(m.seen) x)
                        ELSE m.next_edge END,
       next_writer = CASE WHEN m.is_settled THEN pg_snapshot_xmax(pg_current_snapshot())
                          ELSE m.next_writer END,
       next_at = CASE WHEN m.is_settled THEN clock_timestamp() ELSE m.next_at END
  FROM m WHERE h.source = m.source AND m.seen <> '{}'
""",
    guard_seconds=_GUARD_SECONDS,
)
"""Move the mark to rows before which no running transaction can still insert one."""

_ADD_PEOPLE = Named("""
WITH given AS (
  SELECT DISTINCT hour, contact_id
    FROM unnest(:hours::timestamptz[], :contacts::bigint[]) AS g(hour, contact_id)
), added AS (
  INSERT INTO hour_people (contact_id, hour) SELECT contact_id, hour FROM given ORDER BY 1, 2
  ON CONFLICT DO NOTHING RETURNING contact_id, hour
), days AS (
  SELECT a.contact_id, date_trunc('day', a.hour, :zone) AS day, min(a.hour) AS first
    FROM added a GROUP BY 1, 2
), firsts AS (
  SELECT d.first, (SELECT min(p.hour) FROM hour_people p WHERE p.contact_id = d.contact_id AND p.hour >= d.day
                      AND date_trunc('day', p.hour, :zone) = d.day) AS before FROM days d
)
SELECT hour, sum(people)::int AS people, sum(new_today)::int AS new_today FROM (
  SELECT hour, 1 AS people, 0 AS new_today FROM added
  UNION ALL SELECT first, 0, 1 FROM firsts WHERE before IS NULL OR first < before
  UNION ALL SELECT before, 0, -1 FROM firsts WHERE first < before) x GROUP BY hour
""")
"""Insert people of hours; select how many are counted, each once per hour and once per day.

The result is the same in any order of the hours.
"""
_PRUNE_PEOPLE = Named(
    """
DELETE FROM hour_people WHERE ctid = ANY (ARRAY(
  SELECT p.ctid FROM hour_people p
   WHERE p.hour < now() - :people_days * interval '1 day'
     AND (p.hour > (SELECT min(hour) FROM hourly_stats) + interval '26 hours'
          OR (SELECT min(hour) FROM hourly_stats) <= (SELECT since FROM hour_marks WHERE source = 'turns'))
   ORDER BY p.hour LIMIT :limit))
""",
    people_days=PEOPLE_DAYS,
)
"""Delete people of hours older than PEOPLE_DAYS.

A day that is being counted backwards keeps its people until its first hour is reached.
"""
_LOCK_HOURS = Named("""
SELECT hour, first_tokens, jobs FROM hourly_stats
 WHERE hour = ANY (:hours::timestamptz[]) ORDER BY hour FOR UPDATE
""")
_ADD = Named("""
UPDATE hourly_stats
   SET first_tokens = :first_tokens, jobs = :jobs, counted_at = now(), added_at = now(),
       messages = messages + :messages, people = people + :people, new_today = new_today + :new_today,
       answers = answers + :answers, errors = errors + :errors, calls = calls + :calls,
       unknown_calls = unknown_calls + :unknown_calls, cost_micro = cost_micro + :cost_micro,
       input_tokens = input_tokens + :input_tokens,
       cache_read_tokens = cache_read_tokens + :cache_read_tokens,
       cache_write_tokens = cache_write_tokens + :cache_write_tokens,
       output_tokens = output_tokens + :output_tokens, summaries = summaries + :summaries,
       handovers = handovers + :handovers
 WHERE hour = :hour
""")
"""Add numbers to the row of an hour, and replace its first tokens and jobs."""
_TOUCH = Named("""
UPDATE hourly_stats SET counted_at = now(), added_at = now() WHERE hour = date_trunc('hour', now(), :zone)
""")

# Rows have no gap: the newest one says where to begin, and the oldest one how far the past is counted.
_UNCOUNTED = Named(
    """
SELECT min(h) FROM (
  SELECT DISTINCT date_trunc('hour', x, :zone) AS h
    FROM (SELECT max(hour) AS newest FROM hourly_stats) n,
         generate_series(least(coalesce(n.newest, now()), now() - :recent_hours * interval '1 hour'),
                         now() + interval '1 hour', interval '1 hour') x) hours
 WHERE h <= now()
   AND h NOT IN (SELECT s.hour FROM (SELECT hour FROM hourly_stats WHERE hour <= now()
                                      ORDER BY hour DESC LIMIT 60) s)
   AND h >= coalesce((SELECT min(hour) FROM hourly_stats), date_trunc('hour', now(), :zone))
""",
    recent_hours=_RECENT_HOURS,
)
"""Select the oldest recent hour without a row; NULL if there is none."""
_SINCE = "SELECT since FROM hour_marks WHERE source = 'turns'"
_SET_SINCE = Named("UPDATE hour_marks SET since = :since WHERE source = 'turns'")
_FIRST_HOUR = Named(
    """
SELECT date_trunc('hour', greatest(now() - :kept_months * interval '1 month', least(
         now(), (SELECT created_at FROM sessions ORDER BY id LIMIT 1),
         (SELECT at FROM usage ORDER BY id LIMIT 1),
         (SELECT opened_at FROM turns ORDER BY session_id, turn_no LIMIT 1))), :zone)
""",
    kept_months=_KEPT_MONTHS,
)
"""Select the hour of the oldest row that is counted, within the months of the ledger; now without rows."""
_BEFORE_ALL = Named("""
SELECT date_trunc('hour', min(hour) - interval '1 minute', :zone) FROM hourly_stats
HAVING min(hour) > :since::timestamptz
""")


COUNT_HOUR = Named("""
INSERT INTO hourly_stats (zone, hour, counted_at, added_at, messages, answers, errors, first_tokens, calls,
                          unknown_calls, cost_micro, input_tokens, cache_read_tokens, cache_write_tokens,
                          output_tokens, summaries, handovers, jobs)
SELECT :zone, :hour, now(), now(), c.messages, c.answers, c.errors, c.first_tokens, c.calls,
       c.unknown_calls, c.cost_micro, c.input_tokens, c.cache_read_tokens, c.cache_write_tokens,
       c.output_tokens, c.summaries, c.handovers, c.jobs
  FROM recount_hour(:hour) c
""")
"""Insert the row of the hour that begins at `hour`, counted from its tables, without its people.

`zone` is the time zone of the hours. Fails with a unique violation if the hour has a row.
"""
_FORGET_OPEN_OF_HOUR = Named("DELETE FROM hour_open WHERE hour = :hour")
_KEEP_OPEN_OF_HOUR = Named("""
INSERT INTO hour_open (session_id, turn_no, hour, messages)
SELECT t.session_id, t.turn_no, :hour, t.messages FROM turn_counts t
 WHERE t.ended_at IS NULL AND t.opened_at >= :hour AND t.opened_at < :hour::timestamptz + interval '1 hour'
ON CONFLICT (session_id, turn_no) DO UPDATE SET messages = excluded.messages
""")
_PEOPLE_OF_HOUR = Named("""
SELECT DISTINCT s.contact_id FROM turn_counts t JOIN sessions s ON s.id = t.session_id
 WHERE t.opened_at >= :hour AND t.opened_at < :hour::timestamptz + interval '1 hour' AND t.messages > 0
""")
_SET_PEOPLE = Named("""
UPDATE hourly_stats n SET people = p.people, new_today = p.new_today
  FROM (SELECT count(*) AS people,
               count(*) FILTER (WHERE NOT EXISTS (
                 SELECT FROM hour_people o WHERE o.contact_id = p.contact_id AND o.hour < :hour
                    AND o.hour >= date_trunc('day', :hour::timestamptz, :zone))) AS new_today
          FROM hour_people p WHERE p.hour = :hour) p
 WHERE n.hour = :hour
""")
"""Set the people of an hour to those who wrote in it."""
