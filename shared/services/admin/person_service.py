"""People for operators: the rules by which shell and REST export, erase and hold their data."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

from shared.core.privacy.erasure import Preview, Report
from shared.core.values.errors import NotFound, OnHold
from shared.services.privacy.erasure import WAIT_SECONDS, ErasureService


class PersonStore(Protocol):
    """Store of people, their legal holds and the audit log.

    `find_session` returns an internal id of any of the person's sessions, None without one. `set_legal_hold`
    returns False if nothing changed, None for an unknown person.
    """

    async def find_session(self, public_id: UUID) -> int | None: ...
    async def is_on_hold(self, public_id: UUID) -> bool: ...
    async def set_legal_hold(self, public_id: UUID, *, on: bool, by: str) -> bool | None: ...
    async def record_audit(self, action: str, *, about: str, by: str) -> None: ...


class ErasurePreviews(Protocol):
    """Store that counts the rows that a person's erasure would delete."""

    async def load_preview(self, session_id: int) -> Preview: ...


class PersonNotFound(NotFound):
    """No such person, or one who never had a conversation."""

    sentence = "No such person, or one who never had a conversation."
    advice = "There is no such person, or they never had a conversation."


class PersonService:
    """Operators' access to the data of a person, each in the audit log under its actor. Raises
    StorageUnavailable.
    """

    def __init__(self, people: PersonStore, previews: ErasurePreviews, eraser: ErasureService) -> None:
        self._people = people
        self._previews = previews
        self._eraser = eraser

    async def begin_export(self, person: UUID, *, by: str) -> int:
        """Record in the audit log that `by` exports a person's data; return the internal id of one of their
        sessions.

        The caller reads the data. Raises PersonNotFound.
        """
        session_id = await self._find_session(person)
        await self._people.record_audit("person.export", about=str(person), by=by)
        return session_id

    async def preview_erasure(self, person: UUID) -> Preview:
        """Return the numbers of rows that an erasure of the person would delete; deletes nothing. Raises
        PersonNotFound.
        """
        return await self._previews.load_preview(await self._find_session(person))

    async def erase_person(
        self, person: UUID, *, by: str, actor: str, patience: float = WAIT_SECONDS
    ) -> Report:
        """Record the erasure in the audit log, then erase all data of a person and return the report.

        `by` is the actor in the audit log, `actor` the one of the erasure log, which holds no name. After
        `patience` seconds the report is unfinished, and a worker continues. Raises PersonNotFound, OnHold.
        """
        session_id = await self._find_session(person)
        if await self._people.is_on_hold(person):
            raise OnHold
        await self._people.record_audit("person.erase", about=str(person), by=by)
        return await self._eraser.erase_everything(session_id, actor, patience=patience)

    async def hold_person(self, person: UUID, *, on: bool, by: str) -> bool:
        """Place or lift a legal hold, as `on` says; return False if nothing changed. Raises
        PersonNotFound.
        """
        changed = await self._people.set_legal_hold(person, on=on, by=by)
        if changed is None:
            raise PersonNotFound(str(person))
        return changed

    async def _find_session(self, person: UUID) -> int:
        session_id = await self._people.find_session(person)
        if session_id is None:
            raise PersonNotFound(str(person))
        return session_id
