"""Command `/sample`: plays a recorded demo talk into the conversation; `/sample remove` erases it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

import structlog

from shared.core.privacy.erasure import Report
from shared.core.session.session_state import ChangeRefused, CompactionStored, SessionState
from shared.core.session.turns import Inbound
from shared.core.values.tokens import estimate_blocks
from shared.ports import ALL_PROCESSES, TURN_DUE, Announcer, TokenCounter
from shared.runtime import BackgroundTasks, CrashPoint
from shared.samples import SAMPLE_CID, SAMPLE_KEY, SamplePlay, StoppedSample, load_year
from shared.services.commands.command_call import CommandHandler, CommandInvocation, CommandReply

log = structlog.get_logger(__name__)

PACE_SECONDS = 0.06
"""Seconds between two exchanges; a year's talk then takes less than ten seconds on an idle machine."""


class SamplePlayStore(Protocol):
    """Store of demo talks that are being played.

    `list_due` returns those whose last message is answered. `accept_next` stores the next message and returns
    its event's number, None if another process was first or the talk has ended.
    """

    async def list_due(self, channel: str) -> Sequence[SamplePlay]: ...
    async def accept_next(
        self, play: SamplePlay, inbound: Inbound, *, channel: str, tokens: int
    ) -> int | None: ...


class SampleStore(Protocol):
    """Store of a conversation's demo talk.

    `start` returns False if there is one already. `stop` ends it and returns its messages, None without a
    talk; `remove` deletes its record, so that another may start.
    """

    async def start(self, session_id: int, address_id: int, *, total: int) -> bool: ...
    async def stop(self, session_id: int) -> StoppedSample | None: ...
    async def remove(self, session_id: int) -> None: ...


class FreshStartStore(Protocol):
    """Store of session states and their compactions; changes return ChangeRefused if there is nothing to
    change.
    """

    async def load_state(self, session_id: int) -> SessionState: ...
    async def start_new_conversation(
        self, session_id: int, *, fixed_tokens: int
    ) -> CompactionStored | ChangeRefused: ...
    async def undo_compaction(
        self, session_id: int, *, limit_tokens: int, fixed_tokens: int, hold: bool
    ) -> CompactionStored | ChangeRefused: ...


class MessageEraser(Protocol):
    """Service that erases single messages and everything made from them; raises OnHold.

    Without `places`, clients show no empty place for a message.
    """

    async def erase_messages(
        self, session_id: int, seqs: Sequence[int], actor: str, *, places: bool = True
    ) -> Report: ...


class SamplePlayer:
    """Player of demo talks, called as often as unanswered turns are searched for.

    A row holds the next message, so that any process can continue after a crash. Turns are answered as usual.
    """

    def __init__(
        self,
        store: SamplePlayStore,
        counter: TokenCounter,
        announcer: Announcer,
        *,
        tasks: BackgroundTasks,
        crash_point: CrashPoint,
    ) -> None:
        self._store = store
        self._counter = counter
        self._announcer = announcer
        self._crash_point = crash_point
        self._tasks = tasks

    async def play_due(self, channel: str) -> None:
        """Store the next message of each demo talk whose last one is answered. Raises StorageUnavailable."""
        played = [await self._play(one, channel) for one in await self._store.list_due(channel)]
        if any(played):
            self._tasks.start(self._look_again())

    async def _play(self, play: SamplePlay, channel: str) -> bool:
        inbound = Inbound(
            session_id=play.session_id,
            address_id=play.address_id,
            text=load_year()[play.played].person,
            dedupe_key=f"{SAMPLE_KEY}{play.next_id}",
            cid=f"{SAMPLE_CID}{play.next_id}",
        )
        tokens = estimate_blocks(inbound.blocks, self._counter.count_tokens)
        event_seq = await self._store.accept_next(play, inbound, channel=channel, tokens=tokens)
        self._crash_point("after_sample")
        if event_seq is not None:
            await self._announcer.announce(play.session_id, {"event_seq": event_seq})
        return event_seq is not None

    async def _look_again(self) -> None:
        await asyncio.sleep(PACE_SECONDS)
        await self._announcer.announce(ALL_PROCESSES, TURN_DUE)


class SampleCommand:
    """Handler of `/sample`, which starts a demo talk, and of `/sample remove`, which erases it."""

    def __init__(
        self,
        store: SampleStore,
        sessions: FreshStartStore,
        erasure: MessageEraser,
        announcer: Announcer,
        *,
        limit: int,
    ) -> None:
        """Set up the command; `limit` is the number of tokens at which a conversation is summarised."""
        self._store = store
        self._sessions = sessions
        self._erasure = erasure
        self._announcer = announcer
        self._limit = limit

    @property
    def handlers(self) -> dict[str, CommandHandler]:
        """Handler of `/sample` by command name."""
        return {"sample": self._sample}

    async def _sample(self, call: CommandInvocation) -> CommandReply:
        if call.args.casefold() == "remove":
            return await self._remove(call)
        if call.address_id is None:
            return False, call.texts.say("sample_own")
        year = load_year()
        if not await self._store.start(call.session_id, call.address_id, total=len(year)):
            return False, call.texts.say("sample_there")
        await self._announcer.announce(ALL_PROCESSES, TURN_DUE)
        return True, call.texts.say(
            "sample_begins", count=2 * len(year), limit=call.texts.number(self._limit)
        )

    async def _remove(self, call: CommandInvocation) -> CommandReply:
        """Erase the demo talk and everything made from it; the person's own messages stay live."""
        sample = await self._store.stop(call.session_id)
        if sample is None:
            return False, call.texts.say("sample_none")
        if sample.seqs:
            actor = "person" if call.address_id is not None else "operator"
            await self._erasure.erase_messages(call.session_id, sample.seqs, actor, places=False)
        if sample.has_own_talk:
            await self._undo_since(call.session_id, sample.begun_turn)
        else:
            await self._begin_again(call.session_id)
        await self._store.remove(call.session_id)
        return True, call.texts.say("sample_removed")

    async def _undo_since(self, session_id: int, turn: int) -> None:
        """Undo the summaries that hide turns from `turn` on, so that the person's messages are live again."""
        state = await self._sessions.load_state(session_id)
        while state.view.base_turn >= turn:
            undone = await self._sessions.undo_compaction(
                session_id, limit_tokens=state.context_limit, fixed_tokens=state.fixed_tokens, hold=False
            )
            if isinstance(undone, ChangeRefused):
                return
            await self._announcer.announce(session_id, {"event_seq": undone.event_seq})
            state = await self._sessions.load_state(session_id)

    async def _begin_again(self, session_id: int) -> None:
        state = await self._sessions.load_state(session_id)
        begun = await self._sessions.start_new_conversation(session_id, fixed_tokens=state.fixed_tokens)
        if not isinstance(begun, ChangeRefused):
            await self._announcer.announce(session_id, {"event_seq": begun.event_seq})
