"""Queries of the alerts page: open and past alerts, and the last result of each target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shared.adapters.postgres.dashboard.read_models import MAX_LIMIT, BadQuery, read_cursor, write_cursor
from shared.adapters.postgres.dashboard.session_list import is_moment
from shared.adapters.postgres.db.page_read import count_rows, page_size, read_page
from shared.adapters.postgres.db.pool import Named, PoolStore

_SORT = "alerts"
_PAGE = Named(
    """
SELECT jsonb_build_object(
  'open', coalesce((
     SELECT jsonb_agg(o.told ORDER BY o.opened_at DESC, o.id DESC) FROM (
       SELECT a.id, a.opened_at,
              jsonb_build_object('id', a.public_id, 'kind', a.kind, 'key', a.key, 'detail', a.detail,
                'opened_at', a.opened_at, 'ended_at', a.ended_at, 'seen_at', a.seen_at, 'seen_by', a.seen_by,
                'sends', coalesce((
                  SELECT jsonb_agg(jsonb_build_object('target', s.target, 'phase', s.phase, 'state', s.state,
                           'error', s.error, 'attempt', s.attempt, 'at', coalesce(s.ended_at, s.due_at))
                           ORDER BY s.id)
                    FROM alert_sends s WHERE s.alert_id = a.id), '[]')) AS told
         FROM alerts a WHERE a.ended_at IS NULL
        ORDER BY a.opened_at DESC, a.id DESC LIMIT :most_open) o), '[]'),
  'past', coalesce((
     SELECT jsonb_agg(p.told ORDER BY p.opened_at DESC, p.id DESC) FROM (
       SELECT a.id, a.opened_at,
              jsonb_build_object('id', a.public_id, 'kind', a.kind, 'key', a.key, 'detail', a.detail,
                'opened_at', a.opened_at, 'ended_at', a.ended_at, 'seen_at', a.seen_at, 'seen_by', a.seen_by,
                'sends', coalesce((
                  SELECT jsonb_agg(jsonb_build_object('target', s.target, 'phase', s.phase, 'state', s.state,
                           'error', s.error, 'attempt', s.attempt, 'at', coalesce(s.ended_at, s.due_at))
                           ORDER BY s.id)
                    FROM alert_sends s WHERE s.alert_id = a.id), '[]'))
              || jsonb_build_object('cursor_key', a.opened_at::text, 'cursor_row', a.id) AS told
         FROM alerts a
        WHERE a.ended_at IS NOT NULL
          AND (:key::text IS NULL OR (a.opened_at, a.id) < (:key::text::timestamptz, :row::bigint))
        ORDER BY a.opened_at DESC, a.id DESC LIMIT :limit) p), '[]'),
  'unseen', (SELECT count(*) FROM alerts WHERE ended_at IS NULL AND seen_at IS NULL),
  'targets', coalesce((
     SELECT jsonb_agg(jsonb_build_object(
              'target', t.target, 'state', l.state, 'error', l.error, 'attempt', l.attempt,
              'at', coalesce(l.ended_at, l.due_at),
              'sent_at', (SELECT max(s.ended_at) FROM alert_sends s
                           WHERE s.target = t.target AND s.state = 'sent')) ORDER BY t.place)
       FROM unnest(:targets::text[]) WITH ORDINALITY AS t(target, place)
       LEFT JOIN LATERAL (SELECT * FROM alert_sends s WHERE s.target = t.target
                           ORDER BY s.id DESC LIMIT 1) l ON true), '[]'))::text
""",
    most_open=MAX_LIMIT,
)
"""Alerts page as JSON: open alerts, a page of ended ones, and the last send to each target."""
_OPEN = Named("""
SELECT coalesce(jsonb_agg(o.told ORDER BY o.opened_at DESC, o.id DESC), '[]')::text FROM (
  SELECT a.id, a.opened_at,
         jsonb_build_object('id', a.public_id, 'kind', a.kind, 'key', a.key, 'detail', a.detail,
           'opened_at', a.opened_at, 'ended_at', a.ended_at, 'seen_at', a.seen_at, 'seen_by', a.seen_by,
           'sends', coalesce((
             SELECT jsonb_agg(jsonb_build_object('target', s.target, 'phase', s.phase, 'state', s.state,
                      'error', s.error, 'attempt', s.attempt, 'at', coalesce(s.ended_at, s.due_at))
                      ORDER BY s.id)
               FROM alert_sends s WHERE s.alert_id = a.id), '[]')) AS told
    FROM alerts a WHERE a.ended_at IS NULL ORDER BY a.opened_at DESC, a.id DESC LIMIT 10) o
""")
"""The ten newest open alerts as JSON, each with its sends."""


class AlertInsights(PoolStore):
    """Read-only queries of alerts. They raise StorageUnavailable."""

    async def list_newest_open(self) -> list[dict[str, Any]]:
        """Return at most ten open alerts as objects of the API, the newest first."""
        return list(await read_page(self._pool, *_OPEN()))

    async def count_past(self) -> dict[str, Any] | None:
        """Return the number of ended alerts as `{count, more}`; None if counting takes too long."""
        return await count_rows(self._pool, "SELECT FROM alerts WHERE ended_at IS NOT NULL")

    async def load_page(self, targets: Sequence[str], *, cursor: str = "", limit: int = 50) -> dict[str, Any]:
        """Return `{open: […], past: […], next, unseen, targets: […]}`.

        `open` has at most 200 alerts, `past` a page of `limit` ended ones from `cursor` on, both newest
        first; `next` is the cursor of the next page, or None. `unseen` counts open alerts that were not
        marked as seen. `targets` are those whose last send is returned; alerts are not filtered by them.
        Raises BadQuery if the cursor is invalid.
        """
        limit = page_size(limit)
        key, row = read_cursor(cursor, _SORT) if cursor else (None, 0)
        if key is not None and not is_moment(key):
            raise BadQuery("the cursor cannot be read")
        found: dict[str, Any] = await read_page(
            self._pool,
            *_PAGE(
                key=key,
                row=row,
                limit=limit + 1,
                targets=list(targets),
            ),
        )
        past = found["past"]
        last = past[limit - 1] if len(past) > limit else None
        found["next"] = write_cursor(_SORT, last["cursor_key"], last["cursor_row"]) if last else None
        found["past"] = [
            {name: value for name, value in one.items() if not name.startswith("cursor_")}
            for one in past[:limit]
        ]
        return found
