"""Search of messages by words: in one person's conversation, or for operators in all."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

from shared.adapters.postgres.db.pool import PoolStore, Record, store_method
from shared.adapters.postgres.memory import search_sql as sql
from shared.core.context.question import question_dictionary
from shared.core.memory.search import (
    HITS_PER_PAGE,
    MessageHit,
    MessagesFound,
    SaidMessage,
    SearchKey,
    SearchWord,
    excerpt_of,
    search_words,
)
from shared.core.values.searching import DICTIONARIES

SECONDS = 5.0
"""Seconds that one statement of a search may take."""
SESSIONS_AT_ONCE = 500
"""Number of conversations that one statement of a search of all searches."""
ALL_SECONDS = 3.0
"""Seconds after which a page of a search of all conversations ends; the next one continues there."""
_END = SearchKey(at=datetime(9999, 1, 1, tzinfo=UTC), session_id=0, seq=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionHits:
    """Conversation with messages that match, the newest of which are `hits`."""

    session: str
    person: Mapping[str, Any]
    """Id, name, kind and anonymity of the person, as in the session list."""
    hits: tuple[MessageHit, ...]


class PostgresMessageSearch(PoolStore):
    """Read-only search of messages. It raises StorageUnavailable, also if a statement takes over SECONDS."""

    @store_method
    async def search(
        self,
        session_id: int,
        text: str,
        *,
        linked: bool = True,
        before: SearchKey | None = None,
        limit: int = HITS_PER_PAGE,
    ) -> MessagesFound:
        """Return a page of at most `limit` matches in one conversation, newest first.

        A match has all words of `text`. `before` is the key after which the page continues, None for the
        first page; the result's `next` is None on the last page. A page may have fewer matches and still a
        `next`, if the words are frequent. `linked` adds archived conversations of the session's person.
        """
        scope = await self._pool.fetch(*sql.SCOPE(session_id=session_id, linked=linked), timeout=SECONDS)
        rows, found = await self._hits(scope, text, before, limit=limit + 1, grouped=False)
        page = MessagesFound(hits=found[:limit], timezone=scope[0]["timezone"] if scope else None)
        if len(found) > limit:
            return replace(page, next=found[limit - 1].key)
        if not rows or rows[0]["floor_at"] is None:
            return page
        at, session, seq = (rows[0][f"floor_{name}"] for name in ("at", "session", "seq"))
        return replace(page, next=SearchKey(at=at, session_id=session, seq=seq))

    @store_method
    async def load_message(
        self, session_id: int, where: int, seq: int, *, linked: bool = True
    ) -> SaidMessage | None:
        """Return the message `seq` of the conversation `where`, if `session_id` may search that.

        `linked` allows archived conversations of the session's person. Returns None if it may not, or if the
        message is unknown or erased.
        """
        scope = await self._pool.fetch(*sql.SCOPE(session_id=session_id, linked=linked), timeout=SECONDS)
        if where not in [row["id"] for row in scope]:
            return None
        row = await self._pool.fetchrow(*sql.MESSAGE(session_id=where, seq=seq), timeout=SECONDS)
        if row is None or row["text"] in (None, sql.ERASED):
            return None
        return SaidMessage(**dict(row), timezone=scope[0]["timezone"])

    @store_method
    async def load_messages(self, session_id: int, seqs: Sequence[int]) -> Mapping[int, SaidMessage]:
        """Return messages of one conversation by number; unknown and erased ones are missing."""
        scope = await self._pool.fetch(*sql.SCOPE(session_id=session_id, linked=False), timeout=SECONDS)
        rows = await self._pool.fetch(*sql.MESSAGES(session_id=session_id, seqs=list(seqs)), timeout=SECONDS)
        timezone = scope[0]["timezone"] if scope else None
        return {
            row["seq"]: SaidMessage(
                turn=row["turn"], author=row["author"], at=row["at"], text=row["text"], timezone=timezone
            )
            for row in rows
            if row["text"] not in (None, sql.ERASED)
        }

    @store_method
    async def find_summary(self, session_id: int, text: str, *, day: date) -> SearchKey | None:
        """Return the key of the message that an item `text` of an import's summary cites.

        `day` is the day of the message in the person's time zone. Returns None if no import of the session's
        person has such an item, as after its erasure.
        """
        noon = datetime(day.year, day.month, day.day, 12, tzinfo=UTC)
        row = await self._pool.fetchrow(
            *sql.SUMMARY(
                session_id=session_id, text=text, after=noon - timedelta(hours=30),
                before=noon + timedelta(hours=30),
            ),
            timeout=SECONDS,
        )  # fmt: skip
        return None if row is None else SearchKey(at=row["at"], session_id=row["session_id"], seq=row["seq"])

    @store_method
    async def search_all(
        self, text: str, *, before: SearchKey | None = None, limit: int = HITS_PER_PAGE
    ) -> tuple[tuple[SessionHits, ...], SearchKey | None]:
        """Search all conversations, last active first; return those with matches and the next page's key.

        At most `limit` conversations, each with its newest 3 matches. After ALL_SECONDS a page ends early.
        The key is None at the end.
        """
        found: list[SessionHits] = []
        until = time.monotonic() + ALL_SECONDS
        while True:
            scope = await self._pool.fetch(
                *sql.NEXT_SESSIONS(
                    before_at=before and before.at, before_id=before and before.session_id,
                    limit=SESSIONS_AT_ONCE,
                ), timeout=SECONDS,
            )  # fmt: skip
            most = sql.PER_SESSION * SESSIONS_AT_ONCE
            _, hits = await self._hits(scope, text, None, limit=most, grouped=True)
            by_session: dict[str, list[MessageHit]] = {}
            for hit in hits:
                by_session.setdefault(hit.session, []).append(hit)
            for row in scope:
                before = SearchKey(at=row["last_active_at"], session_id=row["id"], seq=0)
                if row["session"] in by_session:
                    mine = tuple(by_session[row["session"]])
                    person = {name: row[name] for name in ("person_id", "person", "kind", "anonymous")}
                    found.append(SessionHits(session=row["session"], person=person, hits=mine))
                    if len(found) == limit:
                        return tuple(found), before
            if len(scope) < SESSIONS_AT_ONCE:
                return tuple(found), None
            if time.monotonic() > until:
                return tuple(found), before

    async def _hits(
        self, scope: Sequence[Record], text: str, before: SearchKey | None, *, limit: int, grouped: bool
    ) -> tuple[Sequence[Record], tuple[MessageHit, ...]]:
        """Return the raw rows, which tell how far back the search went, and the matches in them."""
        ids, asked = [row["id"] for row in scope], [SearchWord(word=word) for word in search_words(text)]
        if not ids or not asked:
            return (), ()
        wide = [sql.build_like_pattern(word) if word.letter or not grouped else "" for word in asked]
        forms = await self._pool.fetch(
            *sql.FORMS(
                session_ids=ids, words=[word.word for word in asked], wide=wide,
                dictionaries=list(DICTIONARIES), dictionary=question_dictionary(text),
            ), timeout=SECONDS,
        )  # fmt: skip
        words = [SearchWord(word=row["word"], stem=row["stem"]) for row in forms]
        key = before or _END
        statement, given = sql.build_hits_query(forms, words, grouped=grouped)
        found_by = statement(
            **given, session_ids=ids, before_at=key.at, before_session=key.session_id, before_seq=key.seq,
            limit=limit,
        )  # fmt: skip
        rows = await self._pool.fetch(*found_by, timeout=SECONDS)
        names = {row["id"]: row for row in scope}
        found = [_hit(row, names[row["session_id"]], words) for row in rows if row["session_id"] is not None]
        return rows, tuple(found)


def _hit(row: Record, session: Record, words: Sequence[SearchWord]) -> MessageHit:
    return MessageHit(
        key=SearchKey(at=row["at"], session_id=row["session_id"], seq=row["seq"]),
        session=session["session"],
        here=session["here"],
        mid=f"m{row['shown']}",
        turn=row["turn_no"],
        author=row["author"],
        excerpt=excerpt_of(row["text"], words),
    )
