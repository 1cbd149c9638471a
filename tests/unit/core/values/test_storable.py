"""Whatever a model, a file or a person's program says can be stored and sent on."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from shared.core.values.messages import ends_in_half, is_whole, storable, storable_json

ANY_TEXT = st.text(st.characters(exclude_categories=()))
"""Of all of Unicode, halves of surrogate pairs and NUL included."""


@given(ANY_TEXT)
def test_any_text_can_be_stored_and_storable_text_is_unchanged(text: str) -> None:
    kept = storable(text)
    assert is_whole(kept)
    assert "\x00" not in kept
    assert storable(kept) == kept
    if is_whole(text) and "\x00" not in text:
        assert kept == text


@given(st.text())
def test_halves_that_meet_are_their_character_again(text: str) -> None:
    halves = text.encode("utf-16-le", "surrogatepass")
    units = [halves[at : at + 2].decode("utf-16-le", "surrogatepass") for at in range(0, len(halves), 2)]
    assert storable("".join(units)) == text.replace("\x00", "\ufffd")


def test_every_character_of_the_alphabet_alone() -> None:
    for number in range(0x110000):
        char = chr(number)
        lost = number == 0 or 0xD800 <= number <= 0xDFFF
        assert storable(char) == ("\ufffd" if lost else char)
        assert ends_in_half(char) == (0xD800 <= number <= 0xDBFF)


@given(
    st.recursive(
        ANY_TEXT | st.integers() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(ANY_TEXT, inner)
    )
)
def test_every_text_of_a_json_value(value: object) -> None:
    told = json.dumps(storable_json(value), ensure_ascii=False)
    assert is_whole(told)
    assert "\\u0000" not in told.replace("\\\\", "")
