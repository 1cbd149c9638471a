"""What buttons say fits Telegram and is read strictly."""

from __future__ import annotations

import pytest
from aiogram.filters.callback_data import MAX_CALLBACK_LENGTH

from bot.telegram.outbound.buttons import (
    ButtonAction,
    ButtonPress,
    build_button,
    build_keyboard,
)

LARGEST = 2**59


@pytest.mark.parametrize("action", list(ButtonAction))
def test_every_button_fits_and_is_read_back(action: ButtonAction) -> None:
    press = ButtonPress(action=action, address_id=LARGEST, subject=LARGEST)
    data = press.pack()
    assert len(data.encode()) <= MAX_CALLBACK_LENGTH
    assert ButtonPress.unpack(data) == press


def test_a_setting_carries_a_word() -> None:
    press = ButtonPress(action=ButtonAction.SETTING, address_id=1, word="language=de")
    assert ButtonPress.unpack(press.pack()) == press


@pytest.mark.parametrize(
    "data",
    [
        "", "stop", "v2:stop:1:2", "v1:stop:1", "v1:stop:1:2:3:4", "v1:nonsense:1:2", "v1:STOP:1:2",
        "v1:stop:-1:2", "v1:stop:01:2", "v1:stop:١:2", "v1:stop:1:2\n", " v1:stop:1:2", "v1:stop:1:2:",
        "v1:stop:1:" + "9" * 40, "v1:set:1:0:a b", "v1:set:1:0:" + "a" * 30,
    ],
)  # fmt: skip
def test_whatever_we_have_not_written_is_refused(data: str) -> None:
    with pytest.raises(ValueError):
        ButtonPress.unpack(data)


def test_a_button_that_could_not_be_read_is_not_made() -> None:
    with pytest.raises(ValueError, match="no button"):
        ButtonPress(action=ButtonAction.SETTING, address_id=1, word="Größe").pack()


def test_a_keyboard_without_buttons_is_none() -> None:
    assert build_keyboard([[], []]) is None
    made = build_keyboard([[build_button(5, 2, "Stop", ButtonAction.STOP)], []])
    assert made is not None
    assert [[(b.text, b.callback_data) for b in row] for row in made.inline_keyboard] == [
        [("Stop", "v1:stop:5:2")]
    ]


def test_button_of_an_older_message_lacks_the_empty_word() -> None:
    press = ButtonPress.unpack("v1:again:5:2")
    assert (press.action, press.word, press.pack()) == (ButtonAction.REGENERATE, "", "v1:again:5:2")
