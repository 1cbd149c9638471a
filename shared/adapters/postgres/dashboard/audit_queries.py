"""Queries of the audit page: entries by operator, action and time, and the check of the hash chain."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from shared.adapters.postgres.db.page_read import COUNTED_TO, count_rows, read_page
from shared.adapters.postgres.db.pool import Named, PoolStore
from shared.adapters.postgres.people.audit_chain import check_chain

EXPORT_ROWS = 1_000
"""Maximum entries that one statement of an export reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditQuery:
    """Filter of the audit log, all of whose fields must match; empty fields match all.

    `action` is a whole action or a family such as `read`; `about` is the object that was changed. `since` is
    included, `until` is not. `before` is the id before which a page of `limit` entries begins, None for the
    first page.
    """

    actor: str = ""
    action: str = ""
    about: str = ""
    since: datetime | None = None
    until: datetime | None = None
    before: int | None = None
    limit: int = 100


class AuditInsights(PoolStore):
    """Read-only queries of the audit log. They raise StorageUnavailable."""

    async def load_page(self, query: AuditQuery) -> dict[str, Any]:
        """Return `{entries, before, actors, actions}`, entries newest first, each with its person.

        `before` begins the next page, None on the last one. `actors` and `actions` are at most 200 values of
        the whole log to choose from.
        """
        found = await read_page(self._pool, *_PAGE(**_limits(query, query.limit + 1)))
        entries = found["entries"]
        more = len(entries) > query.limit
        found["entries"] = entries[: query.limit]
        return dict(found) | {"before": found["entries"][-1]["id"] if more else None}

    async def count(self, query: AuditQuery) -> dict[str, Any] | None:
        """Return the number of matching entries on all pages as `{count, more}`.

        Returns None if counting takes too long.
        """
        return await count_rows(self._pool, *_COUNTED(**_limits(replace(query, before=None), COUNTED_TO + 1)))

    async def iterate_entries(self, query: AuditQuery) -> AsyncIterator[dict[str, Any]]:
        """Yield all matching entries from `before` on, newest first; `limit` of the query is ignored.

        Each thousand is one statement, so no transaction stays open.
        """
        while True:
            rows = await read_page(self._pool, *_ROWS(**_limits(query, EXPORT_ROWS)))
            for row in rows:
                yield row
            if len(rows) < EXPORT_ROWS:
                return
            query = replace(query, before=rows[-1]["id"])

    async def check_chain(self) -> dict[str, Any]:
        """Recompute the hashes of the audit log and return the result of the function `check_chain`."""
        return await check_chain(self._pool)


def _limits(query: AuditQuery, limit: int) -> dict[str, object]:
    return {**asdict(query), "before": query.before or 2**62, "limit": limit}


_COUNTED = Named("""
SELECT id, at, actor, action, object, detail FROM audit
 WHERE id < :before AND (:actor = '' OR actor = :actor)
   AND (:action = '' OR action = :action OR starts_with(action, :action || '.'))
   AND (:about = '' OR object = :about)
   AND (:since::timestamptz IS NULL OR at >= :since) AND (:until::timestamptz IS NULL OR at < :until)
 ORDER BY id DESC LIMIT :limit
""")
"""Entries that match a query, for counting."""
_ROWS = Named("""
SELECT coalesce(jsonb_agg(jsonb_build_object('id', f.id, 'at', f.at, 'actor', f.actor, 'action', f.action,
                                             'about', f.object, 'detail', f.detail)
                          ORDER BY f.id DESC), '[]')::text FROM (
  SELECT id, at, actor, action, object, detail FROM audit
   WHERE id < :before AND (:actor = '' OR actor = :actor)
     AND (:action = '' OR action = :action OR starts_with(action, :action || '.'))
     AND (:about = '' OR object = :about)
     AND (:since::timestamptz IS NULL OR at >= :since) AND (:until::timestamptz IS NULL OR at < :until)
   ORDER BY id DESC LIMIT :limit) f
""")
"""Part of an export as JSON: entries that match, newest first, without their people."""
_PAGE = Named("""
WITH RECURSIVE actors AS (
  (SELECT actor FROM audit ORDER BY actor LIMIT 1)
  UNION ALL
  SELECT (SELECT a.actor FROM audit a WHERE a.actor > c.actor ORDER BY a.actor LIMIT 1)
    FROM actors c WHERE c.actor IS NOT NULL
), actions AS (
  (SELECT action FROM audit ORDER BY action LIMIT 1)
  UNION ALL
  SELECT (SELECT a.action FROM audit a WHERE a.action > c.action ORDER BY a.action LIMIT 1)
    FROM actions c WHERE c.action IS NOT NULL
), found AS (
  SELECT id, at, actor, action, object, detail FROM audit
   WHERE id < :before AND (:actor = '' OR actor = :actor)
     AND (:action = '' OR action = :action OR starts_with(action, :action || '.'))
     AND (:about = '' OR object = :about)
     AND (:since::timestamptz IS NULL OR at >= :since) AND (:until::timestamptz IS NULL OR at < :until)
   ORDER BY id DESC LIMIT :limit
)
SELECT jsonb_build_object(
  'entries', (
     SELECT coalesce(jsonb_agg(
              jsonb_build_object('id', f.id, 'at', f.at, 'actor', f.actor, 'action', f.action,
                                 'about', f.object, 'detail', f.detail)
              || jsonb_build_object('person', (
                   SELECT jsonb_build_object('id', r.public_id, 'name', nullif(r.display_name, ''),
                                             'kind', r.kind, 'anonymous', r.anonymous)
                     FROM (SELECT p.id, p.merged_into FROM contacts p
                            WHERE p.public_id = CASE
                              WHEN f.object ~ '^(person[:])?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
                              THEN right(f.object, 36)::uuid END
                           UNION ALL
                           SELECT p.id, p.merged_into FROM sessions s JOIN contacts p ON p.id = s.contact_id
                            WHERE s.public_id = CASE
                              WHEN f.object ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
                              THEN f.object::uuid END) o
                     JOIN contacts r ON r.id = coalesce(o.merged_into, o.id) LIMIT 1))
              ORDER BY f.id DESC), '[]') FROM found f),
  'actors', (SELECT coalesce(jsonb_agg(actor), '[]')
               FROM (SELECT actor FROM actors WHERE actor IS NOT NULL LIMIT 200) a),
  'actions', (SELECT coalesce(jsonb_agg(action), '[]')
                FROM (SELECT action FROM actions WHERE action IS NOT NULL LIMIT 200) a))::text
""")
"""Audit page as JSON: newest matching entries, and at most 200 actors and actions to choose from.

Each actor and action is found by one index lookup. The person that an entry is about has the current name;
the log itself has only ids.
"""
