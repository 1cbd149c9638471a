"""What buttons say fits Telegram and is read strictly."""

from __future__ import annotations

import pytest

from bot.telegram.outbound.buttons import (
    DATA_BYTES,
    Button,
    ButtonAction,
    ButtonPress,
    build_keyboard,
    format_callback_data,
    parse_callback_data,
)

LARGEST = 2**59


@pytest.mark.parametrize("action", list(ButtonAction))
def test_every_button_fits_and_is_read_back(action: ButtonAction) -> None:
    press = ButtonPress(action=action, address_id=LARGEST, subject=LARGEST)
    data = format_callback_data(press)
    assert len(data.encode()) <= DATA_BYTES
    assert parse_callback_data(data) == press


def test_a_setting_carries_a_word() -> None:
    press = ButtonPress(action=ButtonAction.SETTING, address_id=1, word="language=de")
    assert parse_callback_data(format_callback_data(press)) == press


@pytest.mark.parametrize(
    "data",
    [
        None, "", "stop", "v2:stop:1:2", "v1:stop:1", "v1:stop:1:2:3:4", "v1:nonsense:1:2", "v1:STOP:1:2",
        "v1:stop:-1:2", "v1:stop:01:2", "v1:stop:١:2", "v1:stop:1:2\n", " v1:stop:1:2", "v1:stop:1:2:",
        "v1:stop:1:" + "9" * 40, "v1:set:1:0:a b", "v1:set:1:0:" + "a" * 30,
    ],
)  # fmt: skip
def test_whatever_we_have_not_written_is_refused(data: str | None) -> None:
    assert parse_callback_data(data) is None


def test_a_button_that_could_not_be_read_is_not_made() -> None:
    with pytest.raises(ValueError, match="no button"):
        format_callback_data(ButtonPress(action=ButtonAction.SETTING, address_id=1, word="Größe"))


def test_a_keyboard_without_buttons_is_none() -> None:
    assert build_keyboard([[], []]) is None
    made = build_keyboard(
        [[Button(label="Stop", press=ButtonPress(action=ButtonAction.STOP, address_id=5, subject=2))], []]
    )
    assert made is not None
    assert [[(b.text, b.callback_data) for b in row] for row in made.inline_keyboard] == [
        [("Stop", "v1:stop:5:2")]
    ]
