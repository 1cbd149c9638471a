"""Conversation between a person in the terminal and the bot, until `/quit`."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress

from shared.samples import load_year
from tests.kit.demo.glance import ButtonNumbers, ScreenChange, ScreenView, parse_screen
from tests.kit.demo.keyboard import LineReader
from tests.kit.demo.paper import ChatPrinter
from tests.kit.replay.fake_telegram import FakeTelegram, FakeTelegramRefused

QUIT = "/quit"
YEAR = "/year"
"""Command that enters a year of conversation; the demo model answers as the sample does."""
LOOK_SECONDS = 1.0
QUIET_SECONDS = 0.8
"""Seconds without a change after which the bot counts as finished."""
SILENT_SECONDS = 6.0
"""Seconds without any change after which no answer is expected, as after a button that only changes
something.
"""
ANSWER_SECONDS = 120.0
_PRESS = re.compile(r"#(\d{1,4})")


class DemoConversation:
    """Conversation in which a terminal sends at any time, while a line from a pipe waits for the answer to
    the previous one.
    """

    def __init__(self, telegram: FakeTelegram, person: int, paper: ChatPrinter, keyboard: LineReader) -> None:
        self._telegram = telegram
        self._person = person
        self._paper = paper
        self._keyboard = keyboard
        self._now = ScreenView()
        self._numbers = ButtonNumbers()
        self._shown: dict[int, str] = {}
        """Message → its text as it was printed last, where nothing can be drawn again."""
        self._changed_at = 0.0
        self._words = 0
        """How often the bot said or changed something."""
        self._moved = asyncio.Event()

    async def run(self) -> None:
        watching = asyncio.create_task(self._watch())
        typing = asyncio.create_task(self._type())
        try:
            await asyncio.wait([watching, typing], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (watching, typing):
                task.cancel()
            await asyncio.wait([watching, typing], timeout=5)
        for task in (typing, watching):
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error

    # -- in ---------------------------------------------------------------------------------------------

    async def _type(self) -> None:
        while (line := await self._keyboard.line()) is not None:
            line = line.strip()
            if line == QUIT:
                return
            self._paper.typed()
            before = self._words
            if line and await self._done(line) and not self._keyboard.is_terminal:
                await self._answered(before)
            self._paper.prompt()

    async def _done(self, line: str) -> bool:
        """Carry out an entered line; return False and say so if that is impossible."""
        try:
            if pressed := _PRESS.fullmatch(line):
                return await self._press(int(pressed[1]))
            if line == YEAR:
                return await self._type_year()
            await self._telegram.say(self._person, line)
        except FakeTelegramRefused as error:
            self._paper.note(f"Telegram refuses: {error}")
            return False
        return True

    async def _type_year(self) -> bool:
        """Enter the messages of the year, each after the previous one was answered."""
        year = load_year()
        self._paper.note(f"A sample of {2 * len(year)} messages; both sides were written for this demo.")
        for exchange in year:
            before = self._now.loud
            self._paper.person(exchange.person)
            await self._telegram.say(self._person, exchange.person)
            async with asyncio.timeout(ANSWER_SECONDS):
                while self._now.loud == before or self._now.running or self._now.typing:
                    self._moved.clear()
                    await self._moved.wait()
            self._print_the_rest()
        self._paper.note("The sample ends here. Ask about it: What is Saffron allergic to?")
        return False

    async def _press(self, number: int) -> bool:
        button = self._numbers.button(number)
        if button is None:
            self._paper.note(f"There is no button #{number}.")
            return False
        message, label = button
        await self._telegram.tap(self._person, label, message)
        return True

    async def _answered(self, before: int) -> None:
        """Wait until the bot has changed something after number `before`, writes nothing, and nothing more
        follows.
        """
        loop = asyncio.get_running_loop()
        began = self._changed_at = loop.time()
        while loop.time() < began + ANSWER_SECONDS:
            quiet = loop.time() - self._changed_at
            enough = QUIET_SECONDS if self._words > before else SILENT_SECONDS
            if quiet >= enough and not (self._now.running or self._now.typing):
                self._print_the_rest()
                return
            self._moved.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.05, enough - quiet)):
                    await self._moved.wait()
        self._paper.note(f"There was no answer within {ANSWER_SECONDS:.0f} s.")

    # -- out --------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        while True:
            screen = await self._telegram.screen(self._person, after=self._now.version, wait=LOOK_SECONDS)
            before, self._now = self._now, parse_screen(screen)
            self._numbers.follow(self._now.bubbles)
            for change in self._now.since(before):
                self._show(change)

    def _show(self, change: ScreenChange) -> None:
        self._changed_at = asyncio.get_running_loop().time()
        self._words += change.kind in ("new", "edited")
        self._moved.set()
        match change:
            case ScreenChange(kind="typing"):
                self._paper.typing()
            case ScreenChange(kind="toast", words=words) if words:
                self._paper.note(f"({words})")
            case ScreenChange(kind="new" | "edited" | "buttons", bubble=bubble) if bubble is not None:
                if self._paper.redraws and (change.kind != "buttons" or bubble.labels):
                    buttons = self._numbers.of(bubble)
                    self._paper.bubble(bubble, buttons, again=change.kind != "new")

    def _print_the_rest(self) -> None:
        """Print messages that are new or changed, once they are complete; only without a terminal."""
        if self._paper.redraws:
            return
        for number, bubble in sorted(self._now.bubbles.items()):
            if self._shown.get(number) != bubble.text:
                again = number in self._shown
                self._paper.bubble(bubble, self._numbers.of(bubble), again=again)
                self._shown[number] = bubble.text
