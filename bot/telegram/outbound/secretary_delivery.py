"""Shows drafts to owners of business accounts, and sends approved drafts to customers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import structlog

from bot.telegram.client.calls import CallDone, CallNotSent, CallOutcome, CallUnknown, MessageSent, Priority
from bot.telegram.client.sender import ChatTarget, Sender
from bot.telegram.inbound.secretary_rules import SecretaryRules
from bot.telegram.markup.entity_text import MessagePart, RenderedText, render, split
from bot.telegram.outbound.buttons import build_draft_buttons
from bot.telegram.outbound.due_work import DueWork, keep_storing
from bot.telegram.texts import explain_failure, get_chat_texts, get_texts
from shared.adapters.postgres.telegram.chats import PostgresTelegramChats
from shared.adapters.postgres.telegram.deliveries import EndedTurn, PostgresDeliveries
from shared.adapters.postgres.telegram.secretary import CustomerDraft, DraftState, PostgresSecretary
from shared.core.session.turns import ReplyEvent, RunEnded, utf16_units
from shared.locales import Catalogue
from shared.runtime import BackgroundTasks, CrashPoint

log = structlog.get_logger(__name__)

POLL_SECONDS = 1.0
"""Seconds between two looks for due drafts, and before one is tried again after a database outage."""
SWEEP_SECONDS = 5.0
"""Seconds between two checks for expired drafts."""
RETRY_SECONDS = 5.0
"""Seconds until a call that surely had no effect is tried again."""
OWNER_AWAY_SECONDS = 60.0
"""Seconds until a draft is shown again after the owner's chat refused it."""
DRAFT_UNITS = 3_000
"""Maximum UTF-16 units of an answer to a customer.

Draft and question must fit in one message to the owner.
"""
QUESTION_CHARS = 500
"""Maximum characters of the customer's messages above a draft; the end is kept."""
CUT_MARK = "\n\n…"
"""Text below an answer that was cut to `DRAFT_UNITS`."""


class CustomerReplySink:
    """Reply sink of a customer's session; shows nothing, and calls `settle` after each ended answer."""

    def __init__(self, settle: Callable[[], Awaitable[None]]) -> None:
        self._settle = settle

    async def __call__(self, event: ReplyEvent) -> None:
        if isinstance(event, RunEnded) and event.state != "waiting":
            await self._settle()

    async def mark_idle(self) -> None:
        return

    async def close(self) -> None:
        return


class SecretaryDelivery:
    """Shows and sends the drafts of all bots that this process holds."""

    def __init__(
        self,
        store: PostgresSecretary,
        deliveries: PostgresDeliveries,
        chats: PostgresTelegramChats,
        *,
        rules: SecretaryRules,
        senders: Mapping[int, Sender],
        list_held_bots: Callable[[], list[int]],
        tasks: BackgroundTasks,
        crash_point: CrashPoint,
    ) -> None:
        self._store = store
        self._deliveries = deliveries
        self._chats = chats
        self._rules = rules
        self._senders = senders
        self._crash_point = crash_point
        self._work = DueWork(
            "drafts", self.work, senders=senders, list_held_bots=list_held_bots, tasks=tasks,
            retry_seconds=POLL_SECONDS,
        )  # fmt: skip
        self.run = self._work.run
        self.wake = self._work.wake

    async def open_orphan_sink(self, session_id: int) -> Callable[[], CustomerReplySink] | None:
        """Return a factory for the reply sink of a customer's session; None if no turn of a customer is due.

        First calls `settle`. Raises StorageUnavailable.
        """
        if await self._store.find_chat_of_due_turn(session_id) is None:
            return None
        await self.settle(session_id)
        return lambda: self.open_sink(session_id)

    def open_sink(self, session_id: int) -> CustomerReplySink:
        """Return a reply sink for a customer's session, which makes drafts of its answers."""
        return CustomerReplySink(lambda: keep_storing(lambda: self.settle(session_id)))

    async def settle(self, session_id: int) -> None:
        """Make drafts of the session's ended answers, mark outdated drafts, and hide texts that were never
        sent.

        Raises StorageUnavailable.
        """
        await self._store.settle(session_id, is_automatic=self._rules.is_automatic, hours=self._rules.hours)
        self.wake()

    async def load_texts(self, bot_id: int, owner_chat_id: int, language: str) -> Catalogue:
        """Return the texts in the language of the owner's chat, or in `language` if that chat has none."""
        for chat in await self._chats.list_threads(bot_id, owner_chat_id):
            if {"language", "app_language"} & chat.settings.keys():
                return get_chat_texts(chat)
        return get_texts(language)

    async def end_overdue(self, held: Sequence[int]) -> None:
        """End drafts of these bots that expired or can no longer be sent. Raises StorageUnavailable."""
        await self._store.end_overdue(held)

    async def work(self, held: Sequence[int]) -> float:
        """Make drafts of ended answers, and start a task for each due draft.

        Return the seconds until the next call. `held` are bot ids; bots without a sender are skipped. Expired
        drafts are ended every SWEEP_SECONDS. Raises StorageUnavailable.
        """
        if ready := self._work.list_ready(held):
            if self._work.is_sweep_due(SWEEP_SECONDS):
                await self._store.end_overdue(ready)
            for session_id in await self._store.list_unsettled(ready):
                await self.settle(session_id)
            for draft in await self._store.list_due(ready):
                self._work.start(draft.key, partial(self._handle, draft))
        return POLL_SECONDS

    async def _handle(self, draft: CustomerDraft) -> None:
        match draft.state:
            case "due":
                await self._show(draft)
            case "approved":
                await self._send(draft)
            case _:
                await self._tell_end(draft)

    # -- the owner's chat -----------------------------------------------------------------------------

    async def _show(self, draft: CustomerDraft) -> None:
        """Show a draft to its owner; after a lost response it is shown again."""
        texts = await self.load_texts(draft.bot_id, draft.owner_chat_id, draft.language)
        part = await self._build_prompt(draft, texts)
        if not await self._store.begin_showing(draft):
            return
        self._crash_point("telegram_before_draft")
        outcome = await self._senders[draft.bot_id].send_text(
            ChatTarget(chat_id=draft.owner_chat_id), part,
            keyboard=build_draft_buttons(texts, draft.draft_id, "shown"),
        )  # fmt: skip
        self._crash_point("telegram_after_draft")
        await keep_storing(lambda: self._record_shown(draft, outcome, "shown"))

    async def _tell_end(self, draft: CustomerDraft) -> None:
        """Edit the draft's message to show how the draft ended.

        Send a silent message if the draft was never shown.
        """
        sender = self._senders[draft.bot_id]
        texts = await self.load_texts(draft.bot_id, draft.owner_chat_id, draft.language)
        part = await self._build_prompt(draft, texts)
        keyboard = build_draft_buttons(texts, draft.draft_id, draft.state)
        if draft.prompt_id is None:
            outcome = await sender.send_text(
                ChatTarget(chat_id=draft.owner_chat_id), part, keyboard=keyboard, silent=True
            )
        else:
            outcome = await sender.edit_text(
                draft.owner_chat_id, draft.prompt_id, part, keyboard=keyboard, priority=Priority.NOTICE
            )
        await keep_storing(lambda: self._record_shown(draft, outcome, draft.state))

    async def _record_shown(self, draft: CustomerDraft, outcome: CallOutcome, state: DraftState) -> None:
        """Store the outcome of showing a draft: shown, to be tried again later, or ended."""
        match outcome:
            case MessageSent(message_id=message_id):
                await self._store.mark_shown(draft, prompt_id=draft.prompt_id or message_id, state=state)
            case CallDone():
                await self._store.mark_shown(draft, prompt_id=draft.prompt_id, state=state)
            case CallNotSent() | CallUnknown():
                await self._store.put_off(draft, seconds=RETRY_SECONDS, error=outcome.reason)
            case _ if draft.state == "due":
                reason = getattr(outcome, "reason", type(outcome).__name__)
                log.warning("draft_not_shown", session_id=draft.session_id, reason=reason)
                await self._store.put_off(draft, seconds=OWNER_AWAY_SECONDS, error=reason)
            case _:  # its message or the owner's chat is gone, so there is nothing to correct
                await self._store.mark_shown(draft, prompt_id=draft.prompt_id, state=state)

    async def _build_prompt(self, draft: CustomerDraft, texts: Catalogue) -> MessagePart:
        """Return the message for the owner's chat: customer, question, draft text, and a line about its
        state.
        """
        questions = await self._store.load_questions(draft.session_id, draft.turn)
        head = _format_head(texts, draft.customer, questions)
        if draft.state == "failed":
            ended = await self._deliveries.load_ended_turn(draft.session_id, draft.turn)
            code, advice = ("", "") if ended is None else (ended.error_code, ended.text)
            reason = explain_failure(texts, code=code, advice=advice, public=True)
            return join_parts(head, RenderedText(), f"{texts.say('draft_failed')} {reason}")
        is_open = draft.state in ("due", "shown")
        note = "" if is_open else texts.say(f"draft_{draft.state}", reason=draft.error)
        if not note and not draft.can_reply:
            note = texts.say("secretary_no_right")
        text = await self._load_text(draft)
        return join_parts(f"{head}\n\n{texts.say('draft_label')}", text, note)

    async def _load_text(self, draft: CustomerDraft) -> RenderedText:
        """Return the text for the customer: the owner's own text, or the answer cut to DRAFT_UNITS.

        Empty if the turn has no stored end.
        """
        if draft.own_text is not None:
            return RenderedText(text=draft.own_text)
        ended = await self._deliveries.load_ended_turn(draft.session_id, draft.turn)
        return RenderedText() if ended is None else cut_answer(ended)

    # -- the customer's chat --------------------------------------------------------------------------

    async def _send(self, draft: CustomerDraft) -> None:
        """Send an approved text to the customer, and store the outcome.

        After a lost response the draft becomes `uncertain`, and the owner decides. A call that surely had no
        effect is tried again. An empty text is marked as refused.
        """
        text = await self._load_text(draft)
        if not text.text.strip():
            await self._store.mark_unsent(draft, state="refused", error="the answer is empty")
            return
        connection_id = await self._store.begin_sending(draft)
        if connection_id is None:
            if not draft.can_reply:
                await self._store.mark_unsent(draft, state="refused", error="no right to reply")
            await self._store.end_overdue([draft.bot_id])
            self.wake()
            return
        self._crash_point("telegram_before_customer")
        outcome = await self._senders[draft.bot_id].send_for_owner(
            connection_id, draft.chat_id, MessagePart(text=text.text, entities=text.entities)
        )
        self._crash_point("telegram_after_customer")
        await keep_storing(lambda: self._record_sent(draft, outcome))
        self.wake()

    async def _record_sent(self, draft: CustomerDraft, outcome: CallOutcome) -> None:
        match outcome:
            case MessageSent(message_id=message_id):
                await self._store.mark_sent(draft, message_id=message_id)
            case CallNotSent(reason=reason, retry_after=seconds):
                await self._store.put_off(draft, seconds=max(seconds or 0.0, RETRY_SECONDS), error=reason)
            case CallUnknown(reason=reason):
                log.warning("customer_answer_uncertain", session_id=draft.session_id, reason=reason)
                await self._store.mark_unsent(draft, state="uncertain", error=reason)
            case _:
                reason = getattr(outcome, "reason", type(outcome).__name__)
                log.warning("customer_answer_refused", session_id=draft.session_id, reason=reason)
                await self._store.mark_unsent(draft, state="refused", error=reason)


def cut_answer(ended: EndedTurn) -> RenderedText:
    """Return at most the first DRAFT_UNITS UTF-16 units of an answer, with CUT_MARK if it was cut."""
    parts = split(render(ended.text), limit=DRAFT_UNITS)
    if not parts:
        return RenderedText()
    text = parts[0].text if len(parts) == 1 else parts[0].text + CUT_MARK
    return RenderedText(text=text, entities=parts[0].entities)


def _format_head(texts: Catalogue, customer: str, questions: Sequence[str]) -> str:
    """Return the first lines of a draft's message: the customer's name and the end of their messages."""
    question = "\n\n".join(filter(None, (one.strip() for one in questions)))
    if len(question) > QUESTION_CHARS:
        question = f"… {question[-QUESTION_CHARS:].lstrip()}"
    return texts.say("draft_head", name=customer, question=question).strip()


def join_parts(head: str, body: RenderedText, note: str) -> MessagePart:
    """Return one message of plain `head`, formatted `body` and plain `note`.

    The entities are shifted to fit.
    """
    before = f"{head}\n\n" if body.text else head
    shift = utf16_units(before)
    entities = tuple(replace(one, offset=one.offset + shift) for one in body.entities)
    text = f"{before}{body.text}"
    return MessagePart(text=f"{text}\n\n{note}" if note else text, entities=entities)
