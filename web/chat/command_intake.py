"""Runs commands that visitors give: checks them at once, runs them in the background, and sends the
result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from shared.core.commands.arguments import render_arguments
from shared.core.commands.commands import nearest_commands
from shared.core.commands.texts import did_you_mean
from shared.core.values.errors import BadInput, EvertalkError, StorageUnavailable
from shared.locales import catalogue
from shared.runtime import BackgroundTasks
from shared.services.commands.command_service import COMMAND_SECONDS
from web.auth.visitors import Known
from web.command_offer import CommandOffer, audience_of
from web.protocol import wire
from web.server.hub import Hub, Replies

COMMAND_LATER = "That could not be done just now. Please give the command again in a moment."
"""Advice if the database does not answer or a command takes longer than `COMMAND_SECONDS`."""
Send = Callable[[Mapping[str, Any]], None]
"""Callback that sends a frame to the client that asked, and to no other."""


class UnknownCommand(BadInput):
    """Command that does not exist or is not offered to this visitor."""

    sentence = "Unknown command."
    code = "unknown_command"
    advice = "Type /help to see what you can do here."


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandIntake:
    """Checks and runs the commands of visitors."""

    commands: CommandOffer
    hub: Hub
    replies: Replies
    tasks: BackgroundTasks

    def start(
        self,
        known: Known,
        *,
        cid: str,
        name: str,
        args: str | Mapping[str, Any],
        language: str,
        send: Send,
    ) -> None:
        """Check a command, and run it in the background, since a compaction takes longer than a message may
        wait.

        `cid` is the client's id of the command, and `send` gets progress and result. Raises UnknownCommand
        and UnreadableMessage.
        """
        offered = {one.name: one for one in self.commands.list_for(known.audience, site=known.site)}
        if name not in offered:
            nearest = nearest_commands(name, offered)
            raise UnknownCommand(name, advice=did_you_mean(nearest, catalogue("commands", language)))
        for value in () if isinstance(args, str) else args.values():
            wire.clean(value if isinstance(value, str) else "")
        words = args if isinstance(args, str) else render_arguments(name, offered[name].arguments, args)
        wire.clean(words)
        self.tasks.start(self._run(known, cid, name, words, language, send))

    async def _run(self, known: Known, cid: str, name: str, args: str, language: str, send: Send) -> None:
        """Run a command, and send its progress and its result or error."""

        async def progress(message: str, percent: int | None) -> None:
            send(wire.command_progress(cid, name, message, percent))

        row = known.row
        try:
            async with asyncio.timeout(COMMAND_SECONDS):
                outcome = await self.commands.runner.run(
                    session_id=row.session_id, address_id=row.address_id, name=name, args=args, cid=cid,
                    progress=progress, audience=audience_of(row.audience), language=language,
                )  # fmt: skip
        except EvertalkError as error:
            is_away = isinstance(error, StorageUnavailable)
            told = StorageUnavailable(str(error), advice=COMMAND_LATER) if is_away else error
            send(wire.error(told, cid=cid, public=known.audience == "public"))
            return
        except TimeoutError:
            late = StorageUnavailable("command took too long", advice=COMMAND_LATER)
            send(wire.error(late, cid=cid))
            return
        if name == "retry" and outcome.success:
            self.replies.answer(row.session_id)
        frame = result_payload(cid, outcome)
        if outcome.event_seq:
            # The service has already announced the result to the other processes.
            self.hub.publish_locally(row.session_id, outcome.event_seq, "command.result", frame)
        else:
            send({"t": "command.result", **frame})


def result_payload(cid: str | None, outcome: Any) -> dict[str, Any]:
    """Return a command's result as `{command, success, result}` for a frame or a response.

    `cid` is added unless it is None or empty, `choices` and `error` if the outcome has them.
    """
    payload = {"command": outcome.command, "success": outcome.success, "result": outcome.result}
    if cid:
        payload["cid"] = cid
    if outcome.choices:
        payload["choices"] = [asdict(choice) for choice in outcome.choices]
    return payload if outcome.error is None else {**payload, "error": outcome.error}
