"""A conversation three times as long as the window of the real model that has to answer it."""

from __future__ import annotations

import time
from urllib.parse import urlsplit

from tests.acceptance.local_model.__main__ import WINDOW
from tests.acceptance.local_model.books import Books
from tests.acceptance.local_model.running import RunningModel
from tests.acceptance.local_model.talk import diary, foreign_letter
from tests.kit.deployment.person import Person
from tests.kit.replay.system import ReplayTarget

TIMES_THE_WINDOW = 3
ANSWER_SECONDS = 240.0
LETTER_CHARS = 5_000
"""We take it for some 6,500 tokens, which would fit; the model counts half as many again, and refuses."""


async def test_message_that_the_model_counts_higher_is_answered(
    model: RunningModel, system: ReplayTarget, wire: str, figures: list[str]
) -> None:
    """Over Messages the server counts it before it is sent; over the other wire it refuses it first."""
    before = len(model.refused())
    async with Person(port_of(system), name="foreign") as person, Books(database_of(system)) as books:
        await person.say(foreign_letter(LETTER_CHARS))
        await person.answered(within_seconds=ANSWER_SECONDS)
        refused = model.refused()[before:]
        await person.say("Thank you. And in one word?")
        await person.answered(within_seconds=ANSWER_SECONDS)
        await books.at_rest(await books.session_of(next(iter(person.said))))
        figures.append(f"a foreign letter over {wire}: refused at {refused or 'nothing'}, then answered")
        all_was_answered(person)
        assert bool(refused) == (wire == "openai")
        assert min(refused, default=WINDOW + 1) > WINDOW
        assert await books.largest_request() <= WINDOW
        assert await books.broken_promises() == []


async def test_a_conversation_goes_on_far_beyond_the_models_window(
    model: RunningModel, system: ReplayTarget, wire: str, figures: list[str]
) -> None:
    began = time.monotonic()
    async with Person(port_of(system), name="long") as person, Books(database_of(system)) as books:
        tokens = await talk(person, model, until_tokens=TIMES_THE_WINDOW * WINDOW)
        session = await books.session_of(next(iter(person.said)))
        evidence = await books.at_rest(session)
        largest = await books.largest_request()
        figures.append(
            f"over {wire}: {len(person.said)} turns, {tokens:,} tokens in {time.monotonic() - began:.0f} s: "
            f"{tokens / WINDOW:.1f} windows of {WINDOW:,}; calls {await books.calls()}"
        )
        figures.append(
            f"{evidence.compactions - evidence.digests} of {evidence.compactions} summaries were the model's "
            f"own; {evidence.flushes} flushes, {evidence.flushes_failed} more failed; notes {evidence.notes}"
        )
        figures.append(
            f"largest request {largest:,}; limit {evidence.limit:,}, hard limit {evidence.hard:,}; "
            f"refused by the model's server: {model.refused() or 'none'}"
        )
        all_was_answered(person)
        assert [message.finals for message in evidence.messages] == [1] * len(person.said)
        assert evidence.misplaced == 0
        assert evidence.compactions >= 2
        assert await books.given_up() == 0
        assert evidence.over_hard == 0
        assert largest <= WINDOW
        assert await books.broken_promises() == []

        # What was said since the last summary may be too much beside what it hides.
        compacted = await person.command("compact")
        await person.until(lambda: compacted in person.commands, "the summary")
        await books.at_rest(session)
        hidden = await books.base_turn(session)
        undone = await person.command("undo")
        await person.until(lambda: undone in person.commands, "the undo")
        assert person.commands[undone]["success"], str(person.commands[undone])
        assert await books.base_turn(session) < hidden
        await person.say("What did I carry on the first page?")
        await person.answered(within_seconds=ANSWER_SECONDS)
        await books.at_rest(session)
        all_was_answered(person)
        assert await books.largest_request() <= WINDOW
        assert await books.broken_promises() == []


def all_was_answered(person: Person) -> None:
    """By the model, not by a notice that says why not; and nothing was shown in two versions."""
    answers = [person.answer_to(cid) for cid in person.said]
    assert [answer and answer["role"] for answer in answers] == ["assistant"] * len(answers)
    assert person.contradictions == []


async def talk(person: Person, model: RunningModel, *, until_tokens: int) -> int:
    """How many tokens were said by both; the next message waits for the answer to the last."""
    tokens = 0
    for words in diary():
        cid = await person.say(words)
        await person.answered(within_seconds=ANSWER_SECONDS)
        answer = person.answer_to(cid)
        assert answer is not None
        tokens += await model.tokens_of(words) + await model.tokens_of(answer["text"])
        if tokens >= until_tokens:
            break
    return tokens


def port_of(system: ReplayTarget) -> int:
    port = urlsplit(system.url).port
    assert port is not None
    return port


def database_of(system: ReplayTarget) -> str:
    assert system.database_url is not None
    return system.database_url
