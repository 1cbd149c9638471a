"""Sends answers to guest queries: Telegram allows one message per question, which can be edited later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import structlog

from bot.telegram.client.calls import CallDone, CallNotSent, CallOutcome, CallUnknown
from bot.telegram.client.sender import Sender
from bot.telegram.markup.entity_text import LIVE_UNITS, MessagePart, RenderedText, render, split
from bot.telegram.outbound.delivery_context import EMPTY_ANSWER, is_notice
from bot.telegram.outbound.due_work import DueWork, keep_storing
from bot.telegram.texts import explain_failure, get_texts
from shared.adapters.postgres.telegram.deliveries import EndedTurn, PostgresDeliveries
from shared.adapters.postgres.telegram.guest_queries import DueGuestQuery, GuestSend, PostgresGuestQueries
from shared.core.session.turns import ReplyEvent, RunEnded
from shared.locales import Catalogue
from shared.runtime import BackgroundTasks, CrashPoint

log = structlog.get_logger(__name__)

HOLDING_SECONDS = 7.0
"""Seconds after the question until a holding line is sent; Telegram waits about ten seconds for an answer."""
RETRY_SECONDS = 0.5
"""Seconds until a call that had no effect is tried again."""
LOOK_SECONDS = 10.0
"""Maximum seconds between two looks for due answers; a wake-up brings the look forward."""
SWEEP_SECONDS = 30.0
"""Seconds between two checks for answers that can no longer be delivered."""
CUT_MARK = "\n\n…"
"""Text below an answer that was cut to one message."""
REFUSED_NOTICE, LIMIT_NOTICE = "refused", "guest_limit"
"""Keys of the texts sent in place of an answer: without access, and above the hourly limit."""


class GuestReplySink:
    """Reply sink of a guest's session; shows nothing, and calls `on_ended` when an answer is stored."""

    def __init__(self, on_ended: Callable[[], None]) -> None:
        self._on_ended = on_ended

    async def __call__(self, event: ReplyEvent) -> None:
        if isinstance(event, RunEnded):
            self._on_ended()

    async def mark_idle(self) -> None:
        """Call `on_ended`."""
        self._on_ended()

    async def close(self) -> None:
        """Call `on_ended`."""
        self._on_ended()


class GuestDelivery:
    """Delivers answers to guest queries for all bots of the process; sends for the bots that it holds."""

    def __init__(
        self,
        store: PostgresGuestQueries,
        deliveries: PostgresDeliveries,
        *,
        senders: Mapping[int, Sender],
        list_held_bots: Callable[[], list[int]],
        tasks: BackgroundTasks,
        crash_point: CrashPoint,
    ) -> None:
        self._store = store
        self._deliveries = deliveries
        self._senders = senders
        self._crash_point = crash_point
        self._work = DueWork(
            "answers to guests", self.send_due, senders=senders, list_held_bots=list_held_bots, tasks=tasks,
            retry_seconds=RETRY_SECONDS,
        )  # fmt: skip
        self.run = self._work.run
        self.wake = self._work.wake

    def open_sink(self) -> GuestReplySink:
        """Return a reply sink for a guest's session."""
        return GuestReplySink(self.wake)

    async def send_due(self, held: Sequence[int]) -> float:
        """Start the due sends of held bots; return the seconds until the next look.

        Raises StorageUnavailable.
        """
        ready = self._work.list_ready(held)
        if not ready:
            return LOOK_SECONDS
        for query in await self._store.list_due(ready, holding_after=HOLDING_SECONDS):
            self._work.start(query.key, partial(self._send, query))
        if self._work.is_sweep_due(SWEEP_SECONDS) and (closed := await self._store.close_deliveries(ready)):
            log.warning("guest_answers_undeliverable", count=closed)
        next_due = await self._store.find_next_due(ready, holding_after=HOLDING_SECONDS)
        return LOOK_SECONDS if next_due is None else min(LOOK_SECONDS, max(RETRY_SECONDS, next_due))

    async def _send(self, query: DueGuestQuery) -> None:
        if query.inline_message_id is not None:
            await self._edit(query, query.inline_message_id)
        else:
            await self._answer(query)

    async def _answer(self, query: DueGuestQuery) -> None:
        """Send the only message that Telegram allows: the answer if the turn has ended, else a holding line.

        The holding line is later edited into the answer.
        """
        sends: GuestSend = "answer" if query.notice or query.has_ended else "holding"
        part = await self._build_part(query, sends)
        if not await self._store.begin(*query.key, sends=sends):
            return
        self._crash_point("telegram_before_guest")
        outcome = await self._senders[query.bot_id].answer_guest(query.chat_id, query.query_id, part)
        self._crash_point("telegram_after_guest")
        await keep_storing(lambda: self._record(query, sends, outcome))
        if isinstance(outcome, CallNotSent):
            await asyncio.sleep(RETRY_SECONDS)

    async def _record(self, query: DueGuestQuery, sends: GuestSend, outcome: CallOutcome) -> None:
        match outcome:
            case CallDone(result=sent) if sends == "holding":
                await self._store.mark_shown(*query.key, inline_message_id=sent.inline_message_id)
            case CallDone():
                await self._store.finish(*query.key, state="done")
            case CallNotSent(reason=reason):
                await self._store.mark_not_sent(*query.key, error=reason)
            case CallUnknown(reason=reason) if sends == "holding":
                # The line may be there. Then Telegram refuses the next message, and there is no id to edit.
                await self._store.mark_not_sent(*query.key, error=reason)
            case _:
                reason = getattr(outcome, "reason", type(outcome).__name__)
                log.warning("guest_query_lost", update=query.update_id, reason=reason)
                await self._store.finish(*query.key, state="lost", error=reason)

    async def _edit(self, query: DueGuestQuery, inline_message_id: str) -> None:
        """Edit the holding line into the answer.

        Try again at the next look if Telegram did not process the edit.
        """
        part = await self._build_part(query, "answer")
        outcome = await self._senders[query.bot_id].edit_guest_answer(query.chat_id, inline_message_id, part)
        self._crash_point("telegram_after_guest")
        match outcome:
            case CallNotSent() | CallUnknown():
                await asyncio.sleep(RETRY_SECONDS)  # the next look tries again
            case CallDone():
                await keep_storing(lambda: self._store.finish(*query.key, state="done"))
            case _:
                reason = getattr(outcome, "reason", type(outcome).__name__)
                log.warning("guest_query_lost", update=query.update_id, reason=reason)
                await keep_storing(lambda: self._store.finish(*query.key, state="lost", error=reason))

    async def _build_part(self, query: DueGuestQuery, sends: GuestSend) -> MessagePart:
        texts = get_texts(query.language)
        if query.notice:
            return MessagePart(text=texts.say(query.notice if query.notice in texts else "notice_bad_input"))
        if sends == "holding":
            return MessagePart(text=texts.say("guest_holding"))
        if not query.is_newest:
            return MessagePart(text=texts.say("guest_together"))
        assert query.session_id is not None, "only a turn ends"
        assert query.turn is not None, "only a turn ends"
        ended = await self._deliveries.load_ended_turn(query.session_id, query.turn)
        assert ended is not None, "the list has ended turns only"
        return _cut(_render(ended, texts))


def _render(ended: EndedTurn, texts: Catalogue) -> RenderedText:
    """Return the answer, or the reason why there is none in the wording for strangers."""
    if is_notice(ended):
        return render(explain_failure(texts, code=ended.error_code, advice=ended.text, public=True))
    rendered = render(ended.text)
    key = "stopped" if ended.state == "stopped" else f"cut_{ended.stop}"
    return rendered.append_note(texts.say(key)) if key in texts else rendered


def _cut(rendered: RenderedText) -> MessagePart:
    """Return as much of a text as fits in one message, with CUT_MARK if it was cut."""
    parts = split(rendered, limit=LIVE_UNITS)
    if not parts:
        return MessagePart(text=EMPTY_ANSWER)
    first = parts[0]
    return first if len(parts) == 1 else replace(first, text=first.text + CUT_MARK)
