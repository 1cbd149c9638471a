"""Plays conversations over Telegram: people write to the real bot through a fake Telegram that also fails."""

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
    """One person's private chat with the bot while a conversation is played.

    The chat's id is the person's.
    """

    script: ConversationScript
    person: int
    sent: list[int] = field(default_factory=list)
    unacknowledged: set[int] = field(default_factory=set)
    given_up: str = ""
    pressed: dict[int, int] = field(default_factory=dict)
    """Turn whose answer was missing, by the id of the notice whose button then brought the answer."""


async def play_chat(
    chat: PlayedChat,
    *,
    telegram: FakeTelegram,
    witness: ChatDatabaseProbe,
    mishaps: Mishaps,
    speed: Speed,
    on_progress: Callable[[int, str], None],
) -> None:
    """Send the messages of a script, each as soon as the answer to the one before is on the screen."""
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
    """Return whether every answer is on the screen.

    When told that an answer may be missing, the person looks for it, and presses the notice's button if it is
    not there.
    """
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
    """Return the uncertain answers that are not on the screen, each with the label of its notice's button."""
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
