"""The demo at the terminal: what is drawn when, and one conversation through the real bot by lines alone."""

from __future__ import annotations

import asyncio
import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from shared.config.settings import load_settings
from shared.samples import find_answer, load_year
from tests.kit.demo import main
from tests.kit.demo.glance import ButtonNumbers, ScreenMessage, ScreenView, parse_screen
from tests.kit.demo.keyboard import LineReader
from tests.kit.demo.paper import ChatPrinter
from tests.kit.demo.talk import DemoConversation
from tests.kit.replay.fake_telegram import FakeTelegram
from tests.kit.telegram.bot_process import ROOT


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def screen(*lines: dict[str, Any], toasts: tuple[str, ...] = (), typing: bool = False) -> dict[str, Any]:
    usual = {"by": "bot", "service": False, "silent": False}
    return {
        "version": 1,
        "lines": [{**usual, **line} for line in lines],
        "toasts": [{"text": words} for words in toasts],
        "typing": [None] if typing else [],
    }


def buttons(*labels: str, data: str = "v1:again:1:1") -> dict[str, Any]:
    return {"inline_keyboard": [[{"text": label, "callback_data": data} for label in labels]]}


def changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    return [change.kind for change in parse_screen(after).since(parse_screen(before))]


def test_screen_changes_are_listed_in_order() -> None:
    first = screen({"message_id": 2, "text": "Yes"})
    assert changes(screen(), first) == ["new"]
    assert changes(first, screen({"message_id": 2, "text": "Yes, sir"})) == ["edited"]
    with_buttons = screen({"message_id": 2, "text": "Yes", "reply_markup": buttons("Again")})
    assert changes(first, with_buttons) == ["buttons"]
    assert changes(first, screen(toasts=("Done",), typing=True)) == ["typing", "gone", "toast"]
    assert changes(first, first) == []


def test_an_answer_with_a_stop_button_is_still_written() -> None:
    running = {"message_id": 2, "text": "Ye", "reply_markup": buttons("Stop", data="v1:stop:1:1")}
    assert parse_screen(screen(running)).running
    assert not parse_screen(
        screen({"message_id": 2, "text": "Yes", "reply_markup": buttons("Again")})
    ).running
    assert not ScreenView().running


def test_what_the_person_says_is_not_said_again() -> None:
    assert parse_screen(screen({"message_id": 1, "text": "Hello", "by": "person"})).bubbles == {}


def test_a_button_keeps_its_number_while_it_is_there() -> None:
    numbers = ButtonNumbers()
    first = ScreenMessage(message_id=2, text="a", labels=("Again", "Shorter"))
    notice = ScreenMessage(message_id=3, text="b", labels=("View",))
    numbers.follow({2: first})
    numbers.follow({2: first, 3: notice})
    assert numbers.of(first) == [(1, "Again"), (2, "Shorter")]
    assert numbers.of(notice) == [(3, "View")]
    later = ScreenMessage(message_id=5, text="c", labels=("Again",))
    numbers.follow({3: notice, 5: later})
    assert (numbers.button(1), numbers.button(2), numbers.button(3)) == ((5, "Again"), None, (3, "View"))


def test_the_last_bubble_is_drawn_again_in_its_place() -> None:
    terminal = Terminal()
    paper = ChatPrinter(terminal)
    paper.typing()
    paper.bubble(ScreenMessage(message_id=2, text="One\n\ntwo"), [(1, "Stop")])
    paper.bubble(ScreenMessage(message_id=2, text="One, two, three"), [], again=True)
    written = terminal.getvalue()
    assert written.count("\x1b[1F\x1b[J") == 1
    assert written.count("\x1b[4F\x1b[J") == 1
    assert written.endswith("bot: One, two, three\nyou: ")


def test_a_bubble_above_the_persons_words_is_not_drawn_over_them() -> None:
    terminal = Terminal()
    paper = ChatPrinter(terminal)
    paper.bubble(ScreenMessage(message_id=2, text="One"), [])
    paper.typed()
    paper.bubble(ScreenMessage(message_id=2, text="One, two"), [], again=True)
    assert "F\x1b[J" not in terminal.getvalue()
    assert "bot: (edited) One, two\n" in terminal.getvalue()


def test_a_pipe_gets_plain_lines() -> None:
    pipe = io.StringIO()
    ChatPrinter(pipe).bubble(
        ScreenMessage(message_id=2, text="One\n\ntwo", silent=True), [(1, "Again"), (2, "Shorter")]
    )
    assert pipe.getvalue() == "bot (silently): One\n\n     two\n     [#1 Again]  [#2 Shorter]\n"


class QuickChat:
    """Answers as the sample does, and puts a silent notice before each answer."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self._lines: list[dict[str, Any]] = []
        self._new = asyncio.Event()

    async def say(self, _person: int, text: str) -> None:
        waiting = [line for line in self._lines if not line.get("silent")]
        assert len(waiting) == len(self.said), "the message before is not answered yet"
        self.said.append(text)
        number = 2 * len(self.said)
        self._lines.append({"message_id": number, "text": "I summarised older messages.", "silent": True})
        self._lines.append({"message_id": number + 1, "text": find_answer(text)})
        self._new.set()

    async def screen(self, _person: int, *, after: int, wait: float) -> dict[str, Any]:
        async with asyncio.timeout(10 * wait):
            while after >= len(self._lines):
                self._new.clear()
                await self._new.wait()
        shown = self._lines[: after + 1] if after >= 0 else []
        return {**screen(*shown), "version": len(shown)}


async def test_a_year_is_typed_and_each_message_waits_for_its_answer() -> None:
    read, write = os.pipe()
    os.write(write, b"/year\n/quit\n")
    os.close(write)
    chat, pipe = QuickChat(), io.StringIO()
    talking = DemoConversation(cast("FakeTelegram", chat), 1, ChatPrinter(pipe), LineReader(read))
    await talking.run()
    os.close(read)
    assert chat.said == [one.person for one in load_year()]
    told = [line for line in pipe.getvalue().splitlines() if line.startswith(("you: ", "bot: "))]
    assert told[:2] == [f"you: {load_year()[0].person}", f"bot: {load_year()[0].assistant}"]
    assert [line[:4] for line in told] == ["you:", "bot:"] * len(load_year())


@pytest.mark.parametrize("arguments", [[], ["web"], ["telegram", "--language", "fr"]])
def test_a_demo_of_something_else_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(arguments, load_settings(data_dir=tmp_path))
    assert left.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_one_talks_with_the_real_bot_by_lines_alone() -> None:
    lines = [
        "Please remember that my dog Bertil is allergic to chicken.",
        "#99",
        "What is my dog allergic to?",
        "/context",
        "x" * 5_000,
        "#4",
        "/quit",
        "never said",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "shared", "demo", "telegram"],
        cwd=ROOT, input="\n".join(lines), capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    said = done.stdout
    assert done.returncode == 0, done.stderr
    assert "You talk with @evertalk_test_bot" in said
    assert "bot is typing" in said
    assert "There is no button #99." in said
    assert "Bertil is allergic to chicken" in said
    assert "I found this" in said
    assert "tokens" in said
    assert "Telegram refuses: longer than a message can be" in said
    assert "[#1 " in said
    assert said.count("I found this") == 2, said
    assert "never said" not in said
    assert "Traceback" not in done.stderr
