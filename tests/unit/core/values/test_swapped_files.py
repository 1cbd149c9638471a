"""The blocks of a message after one of its files was replaced."""

from __future__ import annotations

import pytest

from shared.core.values.messages import Block, Image, Text, replace_file_blocks

TYPED = Text(text="My boats")
DOCUMENT = Text(text="[File a.pdf]\nOne\n[End of file]")
NEW = (Text(text="[File b.pdf]\nTwo\n[End of file]"),)


def image(number: int) -> Image:
    return Image(attachment_id=number, mime="image/jpeg")


@pytest.mark.parametrize(
    ("blocks", "place", "expected"),
    [
        ((TYPED, image(1), image(2), image(3)), 1, (TYPED, image(1), *NEW, image(3))),
        ((image(1), image(2)), 0, (*NEW, image(2))),
        ((TYPED, DOCUMENT, image(1), image(2)), 0, (TYPED, *NEW)),
        ((TYPED, DOCUMENT, image(1), DOCUMENT), 1, (TYPED, DOCUMENT, image(1), *NEW)),
        ((TYPED,), None, (TYPED, *NEW)),
        ((TYPED, image(1)), 5, (TYPED, image(1), *NEW)),
        ((), None, NEW),
    ],
)
def test_replaced_file_takes_its_own_place(
    blocks: tuple[Block, ...], place: int | None, expected: tuple[Block, ...]
) -> None:
    assert replace_file_blocks(blocks, NEW, place=place) == expected
