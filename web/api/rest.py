"""REST for visitors: the list of commands, earlier conversations, and the originals behind a summary."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from shared.adapters.postgres.people.account_links import PostgresAccountLinks
from shared.adapters.postgres.people.api_keys import ApiKey
from shared.adapters.postgres.turns.events import PostgresEvents
from shared.core.commands.commands import ONLY_IN_PERSON
from shared.core.commands.commands import Command as OfferedCommand
from web.auth.visitors import Site, Visitors
from web.command_offer import CommandOffer
from web.protocol.answers import ABSENT, Absent
from web.rest.api_key_auth import KEY
from web.rest.arguments import BadField
from web.rest.calls import Call
from web.rest.kinds import Limit, describe, read_mid
from web.rest.operation import OperationRouter

router = OperationRouter("conversations")
Arguments = Annotated[dict[str, Any], describe("JSON schemas of the arguments, by name")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedCommand:
    """Command that the caller may run."""

    name: str
    description: str
    arguments: Arguments
    required: list[str]
    args: Annotated[str, describe("arguments as typed after the command")] | Absent = ABSENT


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    commands: list[ListedCommand]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedMessage:
    role: str
    text: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedConversation:
    """Conversation that was archived when two channels were joined."""

    session_id: str
    channel: str
    archived_at: datetime
    messages: list[ArchivedMessage]


@dataclass(frozen=True, slots=True, kw_only=True)
class Archived:
    sessions: list[ArchivedConversation]


@dataclass(frozen=True, slots=True, kw_only=True)
class Original:
    """Message that a summary replaces."""

    mid: str
    role: str
    text: str
    at: datetime
    turn: int
    chars: (
        Annotated[int, describe("full length of a long text, of which only the beginning is here")] | Absent
    ) = ABSENT


@dataclass(frozen=True, slots=True, kw_only=True)
class Originals:
    """One page of the messages that a summary replaces."""

    messages: list[Original]
    before: str | Absent | None = ABSENT


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandListHandlers:
    """Handlers of lists: commands, archived conversations, originals of a summary."""

    commands: CommandOffer
    visitors: Visitors
    account_links: PostgresAccountLinks
    events: PostgresEvents

    @router.on("GET /commands", group="commands", anyone=True, visitor=True, scope="commands:run")
    async def list_commands(self, call: Call) -> Commands:
        """List commands and their arguments."""
        request = call.request
        known = None if KEY in request else await self.visitors.find_caller(request)
        if known is not None:
            offered = self.commands.list_for(known.audience, site=known.site)
        else:
            offered = await self._for_anyone(request.get(KEY))
        return Commands(commands=[_command(one, call.language) for one in offered])

    async def _for_anyone(self, key: ApiKey | None) -> tuple[OfferedCommand, ...]:
        """Return the commands for callers without a conversation; with an API key, those of its site.

        Without a key, or for a key without a site, the profile of the deployment decides. A site that cannot
        be read counts as public. Keys get no command of `ONLY_IN_PERSON`.
        """
        site = None
        if key is not None and key.site is not None:
            # A site that cannot be read lets nobody in: as if it were for strangers.
            site = (await self.visitors.sites()).get(key.site, Site(audience="public"))
        public = self.visitors.is_public(site.audience if site is not None else "")
        offered = self.commands.list_for("public" if public else "personal", site=site)
        return tuple(one for one in offered if key is None or one.name not in ONLY_IN_PERSON)

    @router.on(
        "GET /archived", visitor=True, scope="sessions:read", rate="commands", refusals=(404,),
        missing="There is nothing here.",
    )  # fmt: skip
    async def list_archived(self, call: Call) -> Archived | None:
        """List conversations that /link continued on another channel."""
        if call.person.audience == "public":
            return None
        found = await self.account_links.list_archived(call.session_id)
        return Archived(
            sessions=[
                ArchivedConversation(
                    session_id=one.public_id,
                    channel=one.channel,
                    archived_at=one.archived_at,
                    messages=[
                        ArchivedMessage(role=each.author, text=each.text, at=each.at) for each in one.messages
                    ],
                )
                for one in found
            ]
        )

    @router.on(
        "GET /compactions/{id}/messages", visitor=True, scope="sessions:read", rate="reads",
        refusals=(404,), missing="There is no such summary in this conversation.",
    )  # fmt: skip
    async def list_originals(
        self,
        call: Call,
        summary: Annotated[UUID, describe("public id of a summary")],
        *,
        limit: Limit = 200,
        before: Annotated[
            str, describe("`before` of the page of newer messages", json_schema_extra={"maxLength": 30})
        ] = "",
    ) -> Originals | None:
        """List the messages that a summary replaces.

        Pass `before` of an answer to get the page of older messages; null if there is none.
        """
        if "." in before:
            return None  # a place in what operators read
        try:
            seq = read_mid(before) if "before" in call.request.query else None
        except ValueError as error:
            raise BadField(f"`before` is {error}.") from None
        found = await self.events.list_hidden_messages(call.session_id, summary, limit=limit, before_seq=seq)
        if found is None:
            return None
        return Originals(messages=[Original(**one) for one in found.messages], before=found.before)


def _command(command: OfferedCommand, language: str) -> ListedCommand:
    return ListedCommand(
        name=command.name,
        description=command.describe(language),
        arguments=command.schema(),
        required=[one.name for one in command.arguments if one.required],
        args=command.args or ABSENT,
    )
