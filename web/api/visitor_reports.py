"""Reports of a visitor's page to operators: the page it shows, and ratings of their help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field

from shared.adapters.postgres.handover.inbox import PostgresInbox
from shared.core.identity.identity_claims import clean_name
from shared.core.values.user_agent import browser_name
from web.rest.calls import Call
from web.rest.kinds import DONE, Success, describe
from web.rest.operation import OperationRouter

router = OperationRouter("conversations", visitor=True, rate="commands")
PAGE_CHARS = 500
"""Maximum characters of a stored page address."""
LANGUAGE_CHARS = 35
"""Maximum characters of a stored language."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rated:
    rating: Annotated[int, describe("stored rating; later ones do not change it")]


@dataclass(frozen=True, slots=True, kw_only=True)
class VisitorReportHandlers:
    """Handlers of what a visitor's page reports to operators."""

    inbox: PostgresInbox

    @router.on("PUT /contact")
    async def note_contact(
        self,
        call: Call,
        *,
        page: Annotated[str, describe("URL of the page that the visitor is on", max_length=4_000)],
    ) -> Success:
        """Report the page that the visitor is on.

        Stored only while an operator is requested, without query and fragment.
        """
        said = {
            "page": _plain(page),
            "browser": browser_name(call.request.headers.get("User-Agent", "")),
            "language": clean_name(call.language, LANGUAGE_CHARS),
        }
        await self.inbox.record_contact(call.person.row.address_id, said)
        return DONE

    @router.on("POST /ratings", missing="There is nothing to rate here.", refusals=(404,))
    async def rate(
        self,
        call: Call,
        *,
        handover: Annotated[int, describe("`rate` of the event that closed the hand-over", ge=1, lt=2**63)],
        rating: Annotated[int, Field(ge=1, le=5)],
    ) -> Rated | None:
        """Rate a resolved hand-over."""
        stored = await self.inbox.record_rating(call.session_id, handover, rating)
        return None if stored is None else Rated(rating=stored)


def _plain(page: str) -> str:
    """Return a web address without query, fragment and login; empty for any other scheme."""
    try:
        found = urlsplit(page)
    except ValueError:
        return ""
    if found.scheme not in ("http", "https"):
        return ""
    return clean_name(f"{found.scheme}://{found.netloc.rpartition('@')[2]}{found.path}", PAGE_CHARS)
