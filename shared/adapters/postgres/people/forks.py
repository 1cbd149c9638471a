"""Forks: new conversations that begin as a copy of another one up to a message."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from shared.adapters.postgres.db.pool import (
    Connection,
    Named,
    Pool,
    PoolStore,
    Record,
    store_method,
)
from shared.core.session.forks import (
    MOST_COPIED_BYTES,
    MOST_COPIED_ENTRIES,
    MOST_FORKS,
    CopiedEntries,
    Fork,
    renumber_files,
    renumber_ledger,
    renumber_mid,
)
from shared.core.session.ledger import ledger_from_json, ledger_to_json
from shared.core.session.turns import title_of
from shared.core.values.errors import CannotFork, UnknownMessage
from shared.core.values.messages import blocks_from_json, text_without_files
from shared.runtime import CrashPoint, ignore_crash_point

FORK_EVENT = "fork"
"""Kind of the event after the copied part, which names the copied conversation."""


class PostgresForks(PoolStore):
    """Store of forks; each method is one transaction and raises StorageUnavailable."""

    def __init__(self, pool: Pool, *, crash_point: CrashPoint = ignore_crash_point) -> None:
        super().__init__(pool)
        self._crash_point = crash_point

    @store_method
    async def fork(
        self,
        session_id: int,
        address_id: int,
        *,
        seq: int,
        key: str,
        title: Callable[[str], str],
    ) -> Fork:
        """Copy a conversation up to a message into a new one at a new address of the same visitor.

        An answer is copied with its turn. A message of the person is returned as a draft, and only the turns
        before it are copied. The copy has the summaries of that time, pins and files; notes, costs and
        feedback stay with the original. `title` makes the new title of the old one. A repeated `key` returns
        the same fork. Raises UnknownMessage if the session has no such message at this address, and
        CannotFork if its turn is unanswered or there are too many forks, entries or bytes.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(*_ONE_AT_A_TIME(address_id=address_id))
            # The lock makes erasures, edits and summaries wait, but neither messages nor answers.
            source = await connection.fetchrow(*_SOURCE(session_id=session_id, address_id=address_id))
            asked = await connection.fetchrow(*_MESSAGE(session_id=session_id, seq=seq))
            if source is None or asked is None:
                raise UnknownMessage(f"m{seq}")
            draft = ""
            if asked["author"] == "person":
                texts = await connection.fetch(
                    *_DRAFT(session_id=session_id, seq=seq, after=asked["through"], turn=asked["turn_no"])
                )
                draft = "\n\n".join(
                    text for row in texts if (text := text_without_files(blocks_from_json(row["blocks"])))
                )
            digest = hashlib.sha256(key.encode()).digest()
            known = await connection.fetchrow(*_KNOWN(session_id=session_id, key_hash=digest))
            if known is not None:
                return Fork(session_public_id=str(known["public_id"]), title=known["title"], draft=draft)
            if asked["through"] > source["answered_turn"]:
                raise CannotFork("fork_busy")
            if source["forks"] >= MOST_FORKS:
                raise CannotFork("fork_many")
            copy = await _Copy.read(connection, source, through=asked["through"], moment=asked["moment"])
            first = text_without_files(blocks_from_json(source["first_blocks"] or ()))
            named = title(source["title"] or source["summary_title"] or title_of(first))
            public_id = await copy.begin(connection, title=named)
            await copy.copy_log(connection)
            await copy.copy_summaries(connection)
            await copy.copy_events(connection, seq)
            await connection.execute(
                *_RECORD(
                    session_id=copy.id, from_session_id=session_id, from_seq=seq, through_turn=copy.through,
                    seqs=copy.entries.to_json(), key_hash=digest,
                )
            )  # fmt: skip
            self._crash_point("mid_fork")
            return Fork(session_public_id=str(public_id), title=named, draft=draft)

    @store_method
    async def find_source(self, session_id: int) -> tuple[UUID, int] | None:
        """Return public id and message number from which a conversation was forked; None if it is no fork.

        The number is an entry's `seq` in the source.
        """
        row = await self._pool.fetchrow(*_FIND_SOURCE(session_id=session_id))
        return None if row is None else (row["public_id"], row["from_seq"])


class _Copy:
    """Copy in progress: the source, its copied turns and the numbers of the copied entries."""

    def __init__(self, source: Record, *, through: int, seqs: list[int], links: list[Record]) -> None:
        self._source = source
        self._links = links
        self.through = through
        self.entries = CopiedEntries.from_seqs(seqs)
        self._ranges = self.entries.to_shifts()
        self._next_seq = len(seqs) + 1
        self.id = 0
        self._address_id = 0
        self._new_links: dict[str, str] = {}
        """Public ids of the copied summaries by those of the source."""
        self._new_files: dict[str, str] = {}

    @classmethod
    async def read(cls, connection: Connection, source: Record, *, through: int, moment: datetime) -> _Copy:
        """Read which entries and summaries are to be copied.

        Raises CannotFork if there are too many entries.
        """
        of = source["id"]
        rows = await connection.fetch(*_SEQS(source=of, through=through, limit=MOST_COPIED_ENTRIES + 1))
        if len(rows) > MOST_COPIED_ENTRIES:
            raise CannotFork("fork_long")
        links = await connection.fetch(
            *_LINKS(source=of, through=through, moment=moment, erased=source["erased_turn"])
        )
        return cls(source, through=through, seqs=[row["seq"] for row in rows], links=links)

    async def begin(self, connection: Connection, *, title: str) -> UUID:
        """Insert session, sums and address of the copy; return the session's public id."""
        base = self._links[-1]["through_turn"] if self._links else 0
        row = await connection.fetchrow(
            *_BEGIN(
                source=self._source["id"], address_id=self._source["address_id"], title=title,
                thread=secrets.token_hex(8), next_seq=self._next_seq, through=self.through, base=base,
                summaries=sum(link["kind"] in ("summary", "digest") for link in self._links),
                cycle=len(self._links),
            )
        )  # fmt: skip
        assert row is not None
        self.id, self._address_id = row["id"], row["address_id"]
        public_id: UUID = row["public_id"]
        return public_id

    async def copy_log(self, connection: Connection) -> None:
        """Copy turns, entries, files, artifacts, pins and prune decisions.

        Raises CannotFork above MOST_COPIED_BYTES.
        """
        source, fork = self._source["id"], self.id
        await connection.execute(
            *_TURNS(source=source, fork=fork, through=self.through, address_id=self._address_id)
        )
        new_ids = await self._copy_files(connection)
        apart = await connection.fetch(*_WITH_FILES(source=source, ranges=self._ranges))
        rows = [
            {
                "seq": self.entries.copy_of(row["seq"]), "role": row["role"], "author": row["author"],
                "tokens": row["tokens"], "at": row["at"].isoformat(),
                "blocks": renumber_files(row["blocks"], new_ids),
                "replaces": row["replaces_seq"] and self.entries.copy_of(row["replaces_seq"]),
            }
            for row in apart
        ]  # fmt: skip
        await connection.execute(*_ENTRIES_WITH_FILES(fork=fork, rows=rows))
        for statement in (_ENTRIES, _PLACES, _ARTIFACTS, _PINS):
            await connection.execute(*statement(source=source, fork=fork, ranges=self._ranges))
        await connection.execute(
            *_PRUNED(source=source, fork=fork, ranges=self._ranges, through=self.through)
        )

    async def _copy_files(self, connection: Connection) -> dict[int, int]:
        """Copy the files of the copied messages; return new ids by old ids.

        Raises CannotFork above MOST_COPIED_BYTES.
        """
        of = {"source": self._source["id"], "ranges": self._ranges}
        ids = [row["id"] for row in await connection.fetch(*_FILES(**of, through=self.through))]
        if await connection.fetchval(*_BYTES(**of, ids=ids)) > MOST_COPIED_BYTES:
            raise CannotFork("fork_files")
        if not ids:
            return {}
        rows = await connection.fetch(*_COPY_FILES(fork=self.id, ids=ids))
        self._new_files = {row["old_public_id"].hex: row["public_id"].hex for row in rows}
        return {row["old_id"]: row["id"] for row in rows}

    async def copy_summaries(self, connection: Connection) -> None:
        """Copy the summaries of that time, and up to which turn flushes have read."""
        made: dict[int, int] = {}
        newest: int | None = None
        for link in self._links:
            ledger = (
                renumber_ledger(ledger_from_json(link["ledger"]), self.entries) if link["ledger"] else None
            )
            row = await connection.fetchrow(
                *_LINK(
                    compaction_id=link["id"], fork=self.id,
                    parent=None if link["parent"] is None else made.get(link["parent"], newest),
                    from_seq=self.entries.last_copy_up_to(link["from_seq"] - 1) + 1,
                    through_seq=self.entries.last_copy_up_to(link["through_seq"]),
                    ledger=ledger_to_json(ledger) if ledger else {},
                )
            )  # fmt: skip
            assert row is not None
            newest = made[link["id"]] = row["id"]
            self._new_links[str(link["public_id"])] = str(row["public_id"])
        # A new conversation without messages before it drops the head and hides nothing more.
        is_dropped = self._source["head"] is None and self._links[-1:] and (
            self._links[-1]["through_turn"] == self._source["base_turn"]
        )  # fmt: skip
        if newest is not None and not is_dropped:
            await connection.execute(*_SET_HEAD(fork=self.id, head=newest))
        await connection.execute(*_FLUSHED(fork=self.id))

    async def copy_events(self, connection: Connection, seq: int) -> None:
        """Copy the events of the copied turns, then insert one that names the source."""
        source = self._source["id"]
        rows = await connection.fetch(
            *_SHOWN(source=source, through=self.through, links=list(self._new_links))
        )
        # Where the oldest events are retired, the numbers of the copy do not begin with 1 either.
        before = int(self._source["first_event"] > 1)
        plain, apart = [], []
        for number, row in enumerate(rows, start=before + 1):
            if row["payload"] is None:
                plain.append((row["event_seq"], number))
            else:
                payload = self._renumber(row["kind"], row["payload"])
                apart.append({"event_seq": row["event_seq"], "number": number, "payload": payload})
        of = {"source": source, "fork": self.id, "ranges": self._ranges}
        await connection.execute(
            *_EVENTS(**of, events=[one for one, _ in plain], numbers=[number for _, number in plain])
        )
        await connection.execute(*_EVENTS_APART(**of, rows=apart))
        payload = {"state": "fork", "from": str(self._source["public_id"]), "mid": f"m{seq}"}
        await connection.execute(
            *_TELL(
                fork=self.id, event_seq=before + len(rows) + 1, kind=FORK_EVENT, payload=payload,
                address_id=self._address_id,
            )
        )  # fmt: skip

    def _renumber(self, kind: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Return the payload of an event with the ids of the copies."""
        made = {name: value for name, value in payload.items() if name != "cid"}
        for name in ("replaces", "from_mid", "to_mid"):
            if name in made and (mid := renumber_mid(str(made.pop(name)), self.entries)):
                made[name] = mid
        if kind == "compaction":
            made["id"] = self._new_links[made["id"]]
        if "attachments" in made:
            made["attachments"] = [
                {**file, "id": self._new_files[file["id"]]}
                for file in made["attachments"]
                if file["id"] in self._new_files
            ]
        return made


_ONE_AT_A_TIME = Named("""
SELECT pg_advisory_xact_lock(hashtextextended('evertalk.fork:' || account || ' ' || chat, 0))
  FROM addresses WHERE id = :address_id
""")
"""Lock a visitor's forks, so that two requests with the same key make one fork."""
_SOURCE = Named("""
SELECT s.*, a.id AS address_id, a.title,
       (SELECT nullif(l.ledger ->> 'title', '') FROM compactions l WHERE l.id = s.head) AS summary_title,
       (SELECT e.blocks FROM turn_entries te JOIN entries e USING (session_id, seq)
         WHERE te.session_id = s.id AND te.turn_no > s.erased_turn AND coalesce(te.replaced_by, 0) <= 0
           AND e.author = 'person' AND e.blocks <> erased_blocks(e.blocks)
         ORDER BY te.turn_no, te.step LIMIT 1) AS first_blocks,
       (SELECT coalesce(min(event_seq), 1) FROM events WHERE session_id = s.id) AS first_event,
       (SELECT count(*) FROM addresses o JOIN forks f ON f.session_id = o.session_id
         WHERE o.channel = 'web' AND o.account = a.account AND o.chat = a.chat) AS forks
  FROM addresses a JOIN sessions s ON s.id = a.session_id
 WHERE a.id = :address_id AND a.channel = 'web' AND s.id = :session_id AND s.archived_at IS NULL
   FOR KEY SHARE OF s
""")
"""Select and lock the conversation of an address; erasures and edits wait, but no messages."""
_MESSAGE = Named("""
SELECT e.author, te.turn_no,
       CASE WHEN e.author <> 'person' THEN te.turn_no
            ELSE coalesce((SELECT max(b.turn_no) FROM turns b
                            WHERE b.session_id = :session_id AND b.turn_no < te.turn_no
                              AND b.error_code IS DISTINCT FROM 'answered_together'), 0) END AS through,
       coalesce(CASE WHEN e.author = 'person' THEN t.opened_at ELSE t.ended_at END, now()) AS moment
  FROM turn_entries te JOIN entries e USING (session_id, seq) JOIN turns t USING (session_id, turn_no)
  JOIN sessions s ON s.id = te.session_id
 WHERE te.session_id = :session_id AND te.seq = :seq AND te.turn_no > s.erased_turn
   AND e.author IN ('person', 'assistant', 'operator')
""")
"""Select the last turn to copy, and the time whose summaries are copied."""
_DRAFT = Named("""
SELECT e.blocks FROM turn_entries te JOIN entries e USING (session_id, seq)
 WHERE te.session_id = :session_id AND te.turn_no > :after AND te.turn_no <= :turn AND e.author = 'person'
   AND e.blocks <> erased_blocks(e.blocks)
   AND (te.seq = :seq OR te.seq < :seq AND te.replaced_by IS NULL)
 ORDER BY te.turn_no, te.step
""")
_KNOWN = Named("""
SELECT s.public_id, coalesce(a.title, '') AS title FROM forks f JOIN sessions s ON s.id = f.session_id
  LEFT JOIN addresses a ON a.session_id = s.id AND a.channel = 'web'
 WHERE f.from_session_id = :session_id AND f.key_hash = :key_hash
""")
_SEQS = Named("""
SELECT seq FROM turn_entries WHERE session_id = :source AND turn_no <= :through ORDER BY seq LIMIT :limit
""")
_LINKS = Named("""
SELECT l.* FROM compactions l
 WHERE l.session_id = :source AND l.active AND l.through_turn <= (
       SELECT max(a.through_turn) FROM compactions a
        WHERE a.session_id = :source AND a.active AND a.through_turn <= :through
          AND (a.through_turn <= :erased OR EXISTS (
               SELECT FROM compactions o WHERE o.session_id = :source AND o.through_turn = a.through_turn
                  AND o.created_at <= :moment)))
 ORDER BY l.from_turn
""")
"""Select the summaries at a moment.

One that was rewritten later is copied as it is now; one that was undone later is left out.
"""
_BEGIN = Named("""
WITH o AS (
  SELECT s.*, least(s.erased_turn, :through) AS erased,
         greatest(least(s.flushed_turn, :through), :base) AS flushed,
         (SELECT n.state FROM turns n WHERE n.session_id = s.id AND n.turn_no = :through) AS state,
         CASE WHEN s.answered_turn = :through AND s.base_turn = :base THEN s.context_tokens
              ELSE coalesce(
                (SELECT c.context_tokens FROM turn_context_audit c
                  WHERE c.session_id = s.id AND c.turn_id = :through AND c.base_turn = :base
                  ORDER BY c.id DESC LIMIT 1),
                (SELECT sum(e.tokens) FROM turn_entries te JOIN entries e USING (session_id, seq)
                  WHERE te.session_id = s.id AND te.turn_no > :base AND te.turn_no <= :through), 0)
         END AS size
    FROM sessions s WHERE s.id = :source
), s AS (
  INSERT INTO sessions (contact_id, agent_id, view_epoch, next_seq, next_turn, answered_turn, base_turn,
                        erased_turn, flushed_turn, cycle, goal, mode, model, voice, compaction, compact_at,
                        context_tokens, context_limit, context_reserved, token_ratio, token_ratios,
                        token_scale, measured_by, last_channel, troubled_at)
  SELECT contact_id, agent_id, view_epoch + (base_turn <> :base)::int, :next_seq::bigint, :through + 1,
         :through, :base, erased, flushed, :cycle::bigint, goal, mode, model, voice, compaction, compact_at,
         size::bigint,
         context_limit + CASE WHEN :base = 0 AND context_limit > 0 THEN context_reserved ELSE 0 END,
         CASE WHEN :base = 0 THEN 0 ELSE context_reserved END, token_ratio, token_ratios, token_scale,
         measured_by, CASE WHEN :through > 0 THEN 'web' ELSE '' END, CASE WHEN state = 'failed' THEN now() END
    FROM o RETURNING id, public_id
), t AS (
  INSERT INTO session_totals (session_id, compaction_count) SELECT id, :summaries::bigint FROM s
), a AS (
  INSERT INTO addresses (channel, account, chat, thread, contact_id, session_id, title, settings)
  SELECT 'web', a.account, a.chat, :thread, a.contact_id, s.id, :title, a.settings
    FROM addresses a, s WHERE a.id = :address_id RETURNING id
)
SELECT s.id, s.public_id, a.id AS address_id FROM s, a
""")
"""Insert session, sums and address of a fork.

The session has the source's state at the last copied turn, without its cost.
"""
_TURNS = Named("""
INSERT INTO turns (session_id, turn_no, state, channel, address_id, attempt, error_code, opened_at,
                   claimed_at, ended_at, process_faults, stop_reason)
SELECT :fork, turn_no, state, 'web', :address_id, least(attempt, 1), error_code, opened_at,
       claimed_at, ended_at, process_faults, stop_reason
  FROM turns WHERE session_id = :source AND turn_no <= :through
""")
_FILES = Named("""
SELECT a.id FROM attachments a
 WHERE a.session_id = :source AND (a.id IN (
         SELECT (b ->> 'attachment_id')::bigint FROM copied_ranges(:ranges) m
           JOIN entry_rows e ON e.session_id = :source AND e.seq BETWEEN m.first AND m.last
          CROSS JOIN LATERAL jsonb_array_elements(e.blocks) AS b WHERE b ? 'attachment_id')
       OR a.public_id IN (
         SELECT (f ->> 'id')::uuid FROM events v
          CROSS JOIN LATERAL jsonb_array_elements(v.payload -> 'attachments') AS f
          WHERE v.session_id = :source AND v.kind = 'msg' AND v.turn_no <= :through
            AND v.payload ? 'attachments'))
 ORDER BY a.id
""")
"""Select ids of the files that the copied messages show, also of those that an answer announces."""
_BYTES = Named("""
SELECT (SELECT coalesce(sum(length(body)), 0) FROM attachments WHERE id = ANY (:ids::bigint[]))
     + (SELECT coalesce(sum(octet_length(r.body)), 0) FROM copied_ranges(:ranges) m
          JOIN artifacts r ON r.session_id = :source AND r.seq BETWEEN m.first AND m.last)
""")
_COPY_FILES = Named("""
WITH o AS MATERIALIZED (
  SELECT id AS old_id, public_id AS old_public_id, gen_random_uuid() AS public_id,
         nextval(pg_get_serial_sequence('attachments', 'id')) AS id
    FROM attachments WHERE id = ANY (:ids::bigint[])
), made AS (
  INSERT INTO attachments (id, public_id, session_id, sha256, mime, size, state, body, created_at, name,
                           description, arrived_sha256, width, height, words)
  SELECT o.id, o.public_id, :fork, a.sha256, a.mime, a.size, a.state, a.body, a.created_at, a.name,
         a.description, a.arrived_sha256, a.width, a.height, a.words
    FROM o JOIN attachments a ON a.id = o.old_id
)
SELECT * FROM o
""")
"""Copy files with new ids, so that an erasure in one conversation does not affect the other."""
_WITH_FILES = Named("""
SELECT e.seq, e.role, e.author, e.blocks, e.tokens, e.replaces_seq, e.at
  FROM copied_ranges(:ranges) m
  JOIN entry_rows e ON e.session_id = :source AND e.seq BETWEEN m.first AND m.last
 WHERE e.blocks IS NOT NULL AND jsonb_path_exists(e.blocks, '$[*].attachment_id') ORDER BY e.seq
""")
_ENTRIES = Named("""
INSERT INTO entry_rows (session_id, seq, role, author, blocks, tokens, replaces_seq, at, words)
SELECT :fork, e.seq - m.shift, e.role, e.author, e.blocks, e.tokens,
       (SELECT e.replaces_seq - m.shift FROM copied_ranges(:ranges) m
         WHERE e.replaces_seq BETWEEN m.first AND m.last),
       e.at, e.words
  FROM copied_ranges(:ranges) m
  JOIN entry_rows e ON e.session_id = :source AND e.seq BETWEEN m.first AND m.last
 WHERE NOT (e.blocks IS NOT NULL AND jsonb_path_exists(e.blocks, '$[*].attachment_id'))
""")
"""Copy entries without files; `_ENTRIES_WITH_FILES` copies the others, with the ids of the new files."""
_ENTRIES_WITH_FILES = Named("""
INSERT INTO entry_rows (session_id, seq, role, author, blocks, tokens, replaces_seq, at)
SELECT :fork, x.seq, x.role, x.author, x.blocks, x.tokens, x.replaces, x.at
  FROM jsonb_to_recordset(:rows::jsonb) AS x(seq bigint, role text, author text, blocks jsonb, tokens int,
                                             replaces bigint, at timestamptz)
""")
_PLACES = Named("""
INSERT INTO turn_entries (session_id, seq, turn_no, step, replaced_by)
SELECT :fork, te.seq - m.shift, te.turn_no,
       coalesce((SELECT te.step - m.shift FROM copied_ranges(:ranges) m
                  WHERE te.step BETWEEN m.first AND m.last)::int, te.step),
       (SELECT te.replaced_by - m.shift FROM copied_ranges(:ranges) m
         WHERE te.replaced_by BETWEEN m.first AND m.last)
  FROM copied_ranges(:ranges) m
  JOIN turn_entries te ON te.session_id = :source AND te.seq BETWEEN m.first AND m.last
""")
"""Copy the places of entries in turns; an entry is live again if its replacement is not copied."""
_ARTIFACTS = Named("""
INSERT INTO artifacts (session_id, seq, sha256, body, tokens, created_at)
SELECT :fork, r.seq - m.shift, r.sha256, r.body, r.tokens, r.created_at
  FROM copied_ranges(:ranges) m
  JOIN artifacts r ON r.session_id = :source AND r.seq BETWEEN m.first AND m.last
""")
_PINS = Named("""
INSERT INTO pins (session_id, seq, pinned_at)
SELECT :fork, p.seq - m.shift, p.pinned_at
  FROM copied_ranges(:ranges) m
  JOIN pins p ON p.session_id = :source AND p.seq BETWEEN m.first AND m.last
""")
_PRUNED = Named("""
INSERT INTO prune_decisions (session_id, seq, form, turn_no, decided_at, shown)
SELECT :fork, d.seq - m.shift, d.form, d.turn_no, d.decided_at, d.shown
  FROM copied_ranges(:ranges) m
  JOIN prune_decisions d ON d.session_id = :source AND d.seq BETWEEN m.first AND m.last
 WHERE d.turn_no <= :through
""")
_LINK = Named("""
INSERT INTO compactions (session_id, kind, from_turn, through_turn, from_seq, through_seq, parent, trigger,
                   summary_text, ledger, contract, audit, tokens, tokens_before, tokens_after, model,
                   cost_micro, focus, created_at)
SELECT :fork, kind, from_turn, through_turn, :from_seq, :through_seq, :parent, 'fork',
       summary_text, :ledger, contract, audit, tokens, tokens_before, tokens_after, model,
       0, focus, created_at
  FROM compactions WHERE id = :compaction_id RETURNING id, public_id
""")
"""Copy a summary with cost 0; the trigger `fork` excludes it from counts of summaries."""
_SET_HEAD = Named("UPDATE sessions SET head = :head WHERE id = :fork")
_FLUSHED = Named("""
INSERT INTO flushes (session_id, cycle, threshold, from_turn, through_turn, outcome, ended_at)
SELECT id, 0, 'fork', 1, flushed_turn, 'nothing', now() FROM sessions WHERE id = :fork AND flushed_turn > 0
""")
"""Insert a flush that marks the turns that flushes of the source have read, so that none reads them again."""
_SHOWN = Named("""
SELECT v.event_seq, v.kind,
       CASE WHEN v.kind = 'compaction' OR v.payload ?| ARRAY['replaces', 'attachments'] THEN v.payload END
         AS payload
  FROM events v
 WHERE v.session_id = :source AND (v.kind = 'msg' AND v.turn_no <= :through
       OR v.kind = 'compaction' AND v.payload ->> 'state' IN ('new', 'separator', 'done')
          AND v.payload ->> 'id' = ANY (:links::text[]))
 ORDER BY v.event_seq
""")
"""Select the events of the copied turns; payloads are read only if they contain ids of the source."""
_EVENTS = Named("""
INSERT INTO events (session_id, event_seq, kind, seq, turn_no, payload, at)
SELECT :fork, n.number, v.kind,
       (SELECT v.seq - m.shift FROM copied_ranges(:ranges) m WHERE v.seq BETWEEN m.first AND m.last),
       v.turn_no, v.payload - 'cid', v.at
  FROM unnest(:events::bigint[], :numbers::bigint[]) AS n(event_seq, number)
  JOIN events v ON v.session_id = :source AND v.event_seq = n.event_seq
""")
_EVENTS_APART = Named("""
INSERT INTO events (session_id, event_seq, kind, seq, turn_no, payload, at)
SELECT :fork, n.number, v.kind,
       (SELECT v.seq - m.shift FROM copied_ranges(:ranges) m WHERE v.seq BETWEEN m.first AND m.last),
       v.turn_no, n.payload, v.at
  FROM jsonb_to_recordset(:rows::jsonb) AS n(event_seq bigint, number bigint, payload jsonb)
  JOIN events v ON v.session_id = :source AND v.event_seq = n.event_seq
""")
_TELL = Named("""
WITH s AS (
  UPDATE sessions SET next_event_seq = :event_seq::bigint + 1 WHERE id = :fork
), a AS (
  UPDATE addresses SET read_seq = :event_seq WHERE id = :address_id
)
INSERT INTO events (session_id, event_seq, kind, payload) VALUES (:fork, :event_seq, :kind, :payload)
""")
_RECORD = Named("""
INSERT INTO forks (session_id, from_session_id, from_seq, through_turn, seqs, key_hash)
VALUES (:session_id, :from_session_id, :from_seq, :through_turn, :seqs, :key_hash)
""")
_FIND_SOURCE = Named("""
SELECT s.public_id, f.from_seq FROM forks f JOIN sessions s ON s.id = f.from_session_id
 WHERE f.session_id = :session_id
""")
