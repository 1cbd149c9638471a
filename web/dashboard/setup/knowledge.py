"""Knowledge files of an agent, for operators: upload, list, search and delete."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from aiohttp import web
from pydantic import Field

from shared.adapters.files.knowledge_files import MOST_BYTES, UnreadableKnowledge, split_passages
from shared.adapters.files.safe_paths import has_plain_name
from shared.adapters.postgres.memory.knowledge import PostgresKnowledge
from shared.core.session.turns import iso
from shared.services.memory.knowledge_indexer import MAX_PASSAGES
from web.dashboard.access import AuthedRequest
from web.dashboard.agents import Name, find_agent
from web.protocol.answers import ABSENT, Absent
from web.rest.arguments import In
from web.rest.kinds import DONE, Success, describe
from web.rest.operation import OperationRouter
from web.security import HttpRefusal

if TYPE_CHECKING:
    from shared.adapters.postgres.people.agents import PostgresAgents

router = OperationRouter()
SECONDS = 120.0
"""Maximum seconds in which an uploaded file must arrive."""
File = Annotated[str, In("query", "file"), Field(min_length=1, max_length=200), describe("name of the agent")]
Words = Annotated[str, In("query", "q"), Field(max_length=200), describe("text to search for in the files")]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnowledgeFile:
    """File of an agent's knowledge."""

    path: str
    passages: int
    at: str
    uploaded_by: Annotated[str | None, describe("operator who uploaded it; null for a folder's file")]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnowledgePassage:
    """Part of a knowledge file that a search found."""

    path: str
    heading: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    files: list[KnowledgeFile]
    passages: list[KnowledgePassage] | Absent = ABSENT


@dataclass(frozen=True, slots=True, kw_only=True)
class FileKept:
    """Stored knowledge file, and the number of passages in it."""

    path: str
    passages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KnowledgeHandlers:
    """Handlers of an agent's knowledge files."""

    knowledge: PostgresKnowledge
    agents: PostgresAgents

    @router.on("GET /agents/{name}/knowledge", role="viewer", refusals=(404,))
    async def list_knowledge(self, authed: AuthedRequest, name: Name, *, q: Words = "") -> Knowledge:
        """List or search the knowledge of an agent.

        With `q`, the answer also has the matching passages.
        """
        agent, store = await find_agent(self.agents, name), self.knowledge
        files = [
            KnowledgeFile(path=one.path, passages=one.passages, uploaded_by=one.uploaded_by, at=iso(one.at))
            for one in await store.list_files(agent.id)
        ]
        if not q.strip():
            return Knowledge(files=files)
        hits = await store.search(agent.id, q)
        passages = [KnowledgePassage(path=one.path, heading=one.heading, text=one.text) for one in hits]
        return Knowledge(files=files, passages=passages)

    @router.on(
        "PUT /agents/{name}/knowledge", role="admin", takes="application/octet-stream",
        refusals=(404, 409, 413, 422),
    )  # fmt: skip
    async def keep_knowledge(self, authed: AuthedRequest, name: Name, *, file: File) -> FileKept:
        """Store or replace a knowledge file.

        Markdown, text, CSV and PDF are read.
        """
        agent, path = await find_agent(self.agents, name), file.strip()
        if not has_plain_name(path) or "/" in path or "\\" in path or not path:
            raise HttpRefusal(422, "bad_name", "A file has a name of printable signs, without folders.")
        content = await _received(authed.request)
        try:
            passages = await split_passages(path, content)
        except UnreadableKnowledge as error:
            raise HttpRefusal(422, "unreadable", "This file cannot be used.", reason=str(error)) from None
        outcome = await self.knowledge.upload(
            agent.id, path, sha256=hashlib.sha256(content).digest(), passages=passages,
            by=authed.operator.name, most=MAX_PASSAGES,
        )  # fmt: skip
        if outcome == "taken":
            words = "The agent's folder has a file of that name: change it there."
            raise HttpRefusal(409, "path_taken", words)
        if outcome == "full":
            raise HttpRefusal(409, "full", f"An agent knows {MAX_PASSAGES:,} passages at most.")
        await authed.record("agent.knowledge_kept", str(agent.id), passages=len(passages))
        return FileKept(path=path, passages=len(passages))

    @router.on(
        "DELETE /agents/{name}/knowledge", role="admin", refusals=(404,),
        missing="There is no uploaded file of that name.",
    )  # fmt: skip
    async def discard_knowledge(self, authed: AuthedRequest, name: Name, *, file: File) -> Success | None:
        """Delete an uploaded file.

        A file of the agent's folder disappears when it is removed from the folder.
        """
        agent = await find_agent(self.agents, name)
        if not await self.knowledge.discard(agent.id, file):
            return None
        await authed.record("agent.knowledge_discarded", str(agent.id))
        return DONE


async def _received(request: web.Request) -> bytes:
    """Counted as it comes: what a client says of the size may only refuse, never allow."""
    too_large = HttpRefusal(413, "too_large", "That is too large.")
    if (request.content_length or 0) > MOST_BYTES:
        raise too_large
    received = bytearray()
    try:
        async with asyncio.timeout(SECONDS):
            while chunk := await request.content.readany():
                received += chunk
                if len(received) > MOST_BYTES:
                    raise too_large
    except TimeoutError:
        raise HttpRefusal(408, "timeout", "That took too long to arrive. Please try again.") from None
    return bytes(received)
