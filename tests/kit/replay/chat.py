"""Conversations played over Telegram: people who write to the real bot through the stand-in, with mishaps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.kit.replay.chat_evidence import ChatDatabaseProbe, ChatEvidence, UncertainAnswer
from tests.kit.replay.evidence import Evidence
from tests.kit.replay.fake_telegram import FakeTelegram
from tests.kit.replay.mishaps import Mishaps
from tests.kit.replay.play import ANSWER_SECONDS, CHARS_PER_SECOND, LONGEST_TYPING_SECONDS, Speed, steps
from tests.kit.replay.scripts import ConversationScript
from tests.kit.replay.transcript import ChatReading, is_whole, lines_of, read
from tests.kit.replay.verdict import ReplayVerdict, judge_chat

FIRST_PERSON = 1_001
LOOK_SECONDS = 0.05


@dataclass(slots=True, kw_only=True)
class PlayedChat:
    """One person's private chat with the bot while it is played; its id is the person's."""

    script: ConversationScript
    person: int
    sent: list[int] = field(default_factory=list)
    unacknowledged: set[int] = field(default_factory=set)
    given_up: str = ""
    pressed: dict[int, int] = field(default_factory=dict)
    """Notice → turn whose answer was not there, until the notice's button brought it."""


async def play_chat(
    chat: PlayedChat,
    *,
    telegram: FakeTelegram,
    witness: ChatDatabaseProbe,
    mishaps: Mishaps,
    speed: Speed,
    on_progress: Callable[[int, str], None],
) -> None:
    """Each next message once the answer to the one before is on the screen."""
    await telegram.add_person(chat.person, chat.script.person)
    for step in steps(chat.script.messages):
        for text in step:
            if speed == "real":
                await asyncio.sleep(min(LONGEST_TYPING_SECONDS, len(text) / CHARS_PER_SECOND))
            await mishaps.before(chat.person)
            chat.sent.append(await telegram.say(chat.person, text))
            shown = await mishaps.after(chat.person, chat.sent[-1])
            if shown is not None:
                chat.unacknowledged.add(shown)
        if not await _has_seen_all(chat, telegram, witness, since=chat.sent[-len(step)]):
            chat.given_up = f"no answer within {ANSWER_SECONDS:.0f} s"
            return
        on_progress(len(step), chat.script.id)


async def _has_seen_all(
    chat: PlayedChat, telegram: FakeTelegram, witness: ChatDatabaseProbe, *, since: int
) -> bool:
    """Told that an answer may be missing, they look for it, and press the button where it is not there."""
    until = asyncio.get_running_loop().time() + ANSWER_SECONDS
    while await _is_idle(chat, witness):
        missing = await _missing(chat, telegram, witness, since=since)
        if not missing:
            return True
        if asyncio.get_running_loop().time() > until:
            return False
        for doubt, label in missing:
            if doubt.notice not in chat.pressed:
                chat.pressed[doubt.notice] = doubt.answer.turn
                await telegram.tap(chat.person, label, doubt.notice)
        await asyncio.sleep(LOOK_SECONDS)
    return False


async def _missing(
    chat: PlayedChat, telegram: FakeTelegram, witness: ChatDatabaseProbe, *, since: int
) -> list[tuple[UncertainAnswer, str]]:
    """The answers that are not on the screen, with what the button of each notice says."""
    doubts = await witness.in_doubt(chat.person)
    if not doubts:
        return []
    screen = await telegram.screen(chat.person)
    labels = {
        int(line["message_id"]): line["reply_markup"]["inline_keyboard"][0][0]["text"]
        for line in screen["lines"]
        if line.get("reply_markup")
    }
    lines = lines_of(screen)
    return [
        (doubt, label)
        for doubt in doubts
        if doubt.notice > since
        and (label := labels.get(doubt.notice)) is not None
        and not is_whole(lines, doubt.answer, since=since)
    ]


async def _is_idle(chat: PlayedChat, witness: ChatDatabaseProbe) -> bool:
    until = asyncio.get_running_loop().time() + ANSWER_SECONDS
    while not await witness.is_resting(chat.person, messages=len(chat.sent)):
        if asyncio.get_running_loop().time() > until:
            return False
        await asyncio.sleep(LOOK_SECONDS)
    return True


async def read_chat(chat: PlayedChat, telegram: FakeTelegram, evidence: ChatEvidence) -> ChatReading:
    calls = await telegram.calls("sendMessage", chat=chat.person)
    cut = {call["result"]["message_id"] for call in calls if call["outcome"] == "lost" and call["processed"]}
    lines = lines_of(await telegram.screen(chat.person))
    unheard = chat.unacknowledged | cut
    return read(lines, chat.sent, evidence, unacknowledged=unheard, late=chat.pressed.values())


def verdict_of(
    chat: PlayedChat, told: ChatEvidence, reading: ChatReading, evidence: Evidence | None, *, restarts: int
) -> ReplayVerdict:
    return judge_chat(
        chat.script.id,
        told.session,
        sent=len(chat.sent),
        stored=sum(number in told.questions for number in chat.sent),
        reading=reading,
        evidence=evidence,
        restarts=restarts,
        given_up=chat.given_up,
    )
