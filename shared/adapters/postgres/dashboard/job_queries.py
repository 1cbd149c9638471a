"""Queries of the pages of jobs and deliveries, and the pulse by which pages notice changes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from shared.adapters.postgres.dashboard import job_list_sql as sql
from shared.adapters.postgres.dashboard.read_models import BadQuery, read_cursor, write_cursor
from shared.adapters.postgres.db.page_read import count_rows, page_size, read_page
from shared.adapters.postgres.db.pool import PoolStore
from shared.core.ops.job_views import DOUBTS, JOB_KINDS, JOB_STATES, JobMatch

_ORDER = "-created"
LIVE_TOPICS: Mapping[str, tuple[str, ...]] = {
    "sessions": ("sessions", "turns"),
    "jobs": ("jobs", "dead"),
    "handovers": ("handovers",),
    "deliveries": ("deliveries",),
    "costs": ("costs",),
    "notes": ("notes",),
    "alerts": ("alerts", "sends"),
}
"""Topics that pages may follow, and the parts of the pulse that show their changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryQuery:
    """Filter and page of the list of delivery problems; empty fields match all.

    `state` is uncertain, dead or waiting; `session` is a public id.
    """

    state: str = ""
    session: str = ""
    cursor: str = ""
    limit: int = 50


class JobInsights(PoolStore):
    """Read-only queries of jobs and deliveries; unknown numbers are None. They raise StorageUnavailable."""

    async def load_jobs(
        self, match: JobMatch, *, before: int | None = None, limit: int = 50
    ) -> dict[str, Any]:
        """Return matching jobs, newest first, and counts of all jobs, processes and bots.

        `before` is the id before which the page of at most `limit` jobs begins; None is the first page.
        Raises BadQuery for an unknown state or kind.
        """
        check_match(match)
        page = sql.render_jobs(match)(
            kind=match.kind, session=match.session or None, before=before or 2**62, limit=page_size(limit)
        )
        return dict(await read_page(self._pool, *page))

    async def count_jobs(self, match: JobMatch) -> dict[str, Any] | None:
        """Return the number of matching jobs as `{count, more}`.

        Returns None if counting takes too long. Raises BadQuery.
        """
        check_match(match)
        rows = sql.render_count(match)
        return await count_rows(self._pool, *rows(kind=match.kind, session=match.session or None))

    async def count_deliveries(self, query: DeliveryQuery) -> dict[str, Any] | None:
        """Return the number of matching deliveries as `{count, more}`; None if counting takes too long."""
        return await count_rows(
            self._pool, *sql.DELIVERY_PROBLEMS(state=query.state, session=query.session or None)
        )

    async def load_deliveries(self, query: DeliveryQuery) -> dict[str, Any]:
        """Return a page of answer parts that may not have arrived, never will or wait, newest first.

        `next` in it is the cursor of the next page, or None. Raises BadQuery for an unknown state or an
        invalid cursor.
        """
        if query.state and query.state not in DOUBTS:
            raise BadQuery(f"state is one of {', '.join(DOUBTS)}")
        at, session_id, turn, part = _edge(query.cursor) if query.cursor else (None, 0, 0, 0)
        page = sql.DELIVERIES(
            state=query.state, session=query.session or None, before_at=at, before_session=session_id,
            before_turn=turn, before_part=part, limit=page_size(query.limit),
        )  # fmt: skip
        found = dict(await read_page(self._pool, *page))
        last = found.pop("edge")
        found["next"] = write_cursor(_ORDER, json.dumps(last[:3]), last[3]) if last else None
        return found

    async def load_pulse(self) -> dict[str, str]:
        """Return a text by topic of LIVE_TOPICS, which changes when the topic's data change.

        Texts have no meaning except for comparison with earlier ones.
        """
        found = await read_page(self._pool, sql.PULSE)
        return {topic: json.dumps([found[part] for part in parts]) for topic, parts in LIVE_TOPICS.items()}


def check_match(match: JobMatch) -> None:
    """Raise BadQuery if the state or the kind is unknown; empty ones are allowed."""
    if match.state and match.state not in JOB_STATES:
        raise BadQuery(f"state is one of {', '.join(JOB_STATES)}")
    if match.kind and match.kind not in JOB_KINDS:
        raise BadQuery(f"kind is one of {', '.join(JOB_KINDS)}")


def _edge(cursor: str) -> tuple[datetime, int, int, int]:
    key, part = read_cursor(cursor, _ORDER)
    try:
        at, session_id, turn = json.loads(key)
        moment = datetime.fromisoformat(at)
        numbers = (int(session_id), int(turn), int(part))
    except (ValueError, TypeError):
        raise BadQuery("the cursor cannot be read") from None
    if not all(0 <= number < 2**62 for number in numbers) or moment.tzinfo is None:
        raise BadQuery("the cursor cannot be read")
    return (moment, *numbers)
