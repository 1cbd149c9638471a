"""Search in what people said, in all conversations or in one: it is to read, and is audited like reading."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID

from shared.adapters.postgres.dashboard.session_queries import SessionInsights
from shared.adapters.postgres.memory.search import PostgresMessageSearch
from shared.core.memory.search import QUERY_CHARS, MessageHit, SearchKey
from web.dashboard.access import AuthedRequest
from web.rest.arguments import BadField
from web.rest.kinds import Cursor, FoundMessage, describe, show_hit
from web.rest.operation import OperationRouter

router = OperationRouter()


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSession:
    """Conversation with messages that match a search."""

    id: UUID
    hits: list[FoundMessage]
    person_id: UUID
    person: str | None
    kind: str
    anonymous: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundConversations:
    sessions: list[FoundSession]
    next: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchHandlers:
    """Handler of the search in all conversations."""

    message_search: PostgresMessageSearch
    session_insights: SessionInsights

    @router.on("GET /search", role="viewer", refusals=(404,), missing="There is no such conversation.")
    async def search_conversations(
        self,
        authed: AuthedRequest,
        *,
        q: Annotated[str, describe("text to search for", max_length=QUERY_CHARS, pattern=r"\S")],
        session: Annotated[
            str, describe("public id of a single conversation", json_schema_extra={"format": "uuid"})
        ] = "",
        cursor: Cursor = "",
    ) -> FoundConversations | None:
        """Search messages of all conversations, last active first.

        Each conversation has its newest matching messages; with `session`, a page of them. The search is
        written to the audit log.
        """
        key = SearchKey.parse(cursor) if cursor else None
        if cursor and key is None:
            raise BadField("`cursor` is the `next` of the page before.", place="query")
        search = self.message_search
        if session:
            if (known := await self._find_session(session)) is None:
                return None
            session_id, person = known
            page = await search.search(session_id, q, linked=False, before=key)
            found, key = [_found(session, page.hits, **person)], page.next
        else:
            everywhere, key = await search.search_all(q, before=key)
            found = [_found(one.session, one.hits, **one.person) for one in everywhere]
        read = [str(one.id) for one in found if one.hits]
        await authed.record("read.search", str(UUID(session)) if session else "", sessions=read)
        return FoundConversations(sessions=found, next=None if key is None else str(key))

    async def _find_session(self, session: str) -> tuple[int, dict[str, Any]] | None:
        try:
            return await self.session_insights.find_person(UUID(session))
        except ValueError:
            return None


def _found(session: str, hits: tuple[MessageHit, ...], **person: Any) -> FoundSession:
    return FoundSession(id=UUID(session), hits=list(map(show_hit, hits)), **person)
