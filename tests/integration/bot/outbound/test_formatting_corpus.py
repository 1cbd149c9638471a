"""Every formatted answer of a corpus arrives through the strict Telegram, and none of its words is lost."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from tests.integration.bot.outbound.delivery_driver import BotProcess
from tests.kit.fakes.bot_api import Line, Person
from tests.unit.bot.markup.samples import SAMPLES, WHOLE


def mended(text: str) -> str:
    """Leave out halves of characters and zeros, which no answer has that is stored."""
    return text.encode("utf-8", "ignore").decode().replace("\0", "")


ANSWERS = {name: mended(sample.markdown) for name, sample in SAMPLES.items()} | {"a whole answer": WHOLE}
LONG_UNITS = 11_000
"""An answer of three messages."""
FRAMES: dict[str, Callable[[str], str]] = {
    "alone": lambda text: text,
    "between words": lambda text: f"Here it is:\n\n{text}\n\nThat is all.",
    "in a quote": lambda text: "\n".join(f"> {line}" for line in text.split("\n")),
    "in a list": lambda text: "- " + "\n  ".join(text.split("\n")),
    "above a table": lambda text: f"## Answer\n\n{text}\n\n| a | b |\n|---|---|\n| one | two |",
    "long": lambda text: "\n\nAnd once more:\n\n".join([text] * (LONG_UNITS // max(len(text), 500))),
}
WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|(?:(?![\u3040-\u30ff\u3400-\u9fff])[^\W_])+")
MARKUP = {
    "fences of tildes and odd languages": "title id a b",
    "empty fences": "py",
    "emphasis that crosses": "a b",  # shown as one word
    "tasks and rules": "x X",
    "links": "title",
    "addresses that must not live": "x data text html mailto tel",
    "details": "details summary",  # a block that opens, in the rich form
    "raw HTML": "amp lt gt copy",
    "a whole answer": "x",
}
"""Words of a source that are marks, entities or addresses: what they stand for is shown instead."""


def words(text: str) -> Counter[str]:
    return Counter(WORD.findall(text))


def readable(value: Any) -> Iterator[str]:
    """Yield every text, address and language of code in a part of a message."""
    match value:
        case str():
            yield value
        case list():
            for each in value:
                yield from readable(each)
        case dict():
            yield from readable([each for name, each in value.items() if name != "type"])


def shown(lines: Sequence[Line]) -> Counter[str]:
    found = [line.raw.get("rich_message") or [line.text, line.entities] for line in lines]
    return words(" ".join(readable(found)))


def lost(name: str, source: str, lines: Sequence[Line]) -> list[str]:
    markup = MARKUP.get(name, "").split()
    return [word for word in words(source) - shown(lines) if word not in markup]


def test_corpus_has_as_many_answers_as_it_should() -> None:
    assert len(ANSWERS) * len(FRAMES) >= 195


@pytest.mark.control("S18")
@pytest.mark.parametrize("form", ["classic", "rich"])
@pytest.mark.parametrize("frame", FRAMES)
async def test_no_word_of_a_formatted_answer_is_lost(
    bot: BotProcess, ann: Person, frame: str, form: str
) -> None:
    if form == "rich":
        bot.wanted.add("rich")
    before, found = 0, {}
    for number, (name, text) in enumerate(ANSWERS.items()):
        source = FRAMES[frame](text)
        bot.beat()
        answer = await bot.begin(await bot.place())
        if number % 2:
            await answer.stream(source, step=200, pause=0.0)
        await answer.end(source)
        lines = (await ann.screen()).answers
        if gone := lost(name, source, lines[before:]):
            found[name] = gone
        before = len(lines)
    assert found == {}
