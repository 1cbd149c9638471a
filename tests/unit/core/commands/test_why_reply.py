"""Reply of `/why`: bounds, missing messages, and messages of earlier conversations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any, cast

import pytest

from shared.core.context.notes import KeptNote, NoteSource
from shared.core.memory.search import MessageHit, MessagesFound, SaidMessage, SearchKey
from shared.core.session.session_state import SessionState
from shared.core.session.turns import ContextAudit, StoredTurn
from shared.locales import catalogue, list_languages
from shared.services.commands.command_call import CommandInvocation, Guide, Place
from shared.services.commands.why import MOST_NAMES, WhyCommand, render_memory
from shared.services.memory.answer_memory import (
    MOST_PASSAGES,
    AnswerMemoryReader,
    MemoryOfAnswer,
    ShownPassage,
)

ENGLISH = catalogue("commands", "en")
AT = datetime(2026, 11, 17, 9, 30, tzinfo=UTC)
NOTE = KeptNote(
    id=8, short_id="n1", kind="fact", text="Has a boat.", subject="", importance=5, authority="person",
    durability="durable", observed_at=AT, event_date=None, from_turn=1,
)  # fmt: skip
PASSAGE = ShownPassage(
    session_id=1, seq=3, is_here=True, at=AT, author="person", text="The *boat* leaks.\nBadly."
)


class Stores:
    """All stores of the command, for one answered turn."""

    def __init__(self, recalled: str, *, said: Mapping[int, str], earlier: Sequence[MessageHit] = ()) -> None:
        audit = ContextAudit(
            model_alias="m", model_context_limit=1, input_budget=1, hard_limit=1, estimated_before=1,
            estimated_after_summary=1, estimated_after_prune=1, reported=None, context_tokens=1,
            part_hashes=("a", "b", "c"),
            recipe={"system": 1, "tools": False, "open": 4, "recall": True},
        )  # fmt: skip
        self.turn = StoredTurn(audit=audit, head=None, entries=(), parts={"a": "s", "b": recalled, "c": "p"})
        self.said = said
        self.earlier = earlier

    async def load_state(self, session_id: int) -> SessionState:
        state = type("State", (), {"answered_turn": 4})
        return cast("SessionState", state())

    async def load_turn(self, session_id: int, turn: int) -> StoredTurn | None:
        return self.turn if turn == 4 else None

    async def load_messages(self, session_id: int, seqs: Sequence[int]) -> Mapping[int, SaidMessage]:
        return {
            seq: SaidMessage(turn=seq, author="person", at=AT, text=self.said[seq], timezone="UTC")
            for seq in seqs
            if seq in self.said
        }

    async def search(self, session_id: int, text: str, *, linked: bool = True) -> MessagesFound:
        return MessagesFound(hits=tuple(self.earlier), timezone="UTC")

    async def find_summary(self, session_id: int, text: str, *, day: date) -> SearchKey | None:
        return next((hit.key for hit in self.earlier if hit.author == "summary"), None)

    async def load_owner(self, session_id: int) -> NoteSource:
        return NoteSource(session_id=session_id, contact_id=1, scope="main")

    async def load_sent(
        self, whose: NoteSource, note_ids: Sequence[int], texts: Sequence[str], *, limit: int
    ) -> tuple[KeptNote, ...]:
        return ()

    async def find_sources(self, session_id: int, note_ids: Sequence[int]) -> Mapping[int, int]:
        return {}

    async def store_list(self, *_: Any) -> None: ...


async def reply(stores: Stores) -> Guide:
    call = CommandInvocation(
        session_id=1, address_id=1, channel="web", audience="personal", args="", offered=(),
        progress=cast("Any", None), texts=ENGLISH,
    )  # fmt: skip
    command = WhyCommand(stores, AnswerMemoryReader(stores, stores, stores, timezone="UTC"), stores)
    _, text = await command.handlers["why"](call)
    assert isinstance(text, Guide)
    return text


def hit(session: int, *, here: bool, at: datetime = AT) -> MessageHit:
    return MessageHit(
        key=SearchKey(at=at, session_id=session, seq=5), session="x", here=here, mid="m5", turn=1,
        author="person", excerpt=(),
    )  # fmt: skip


def test_messages_are_numbered_after_notes() -> None:
    text = render_memory(MemoryOfAnswer(notes=(NOTE,), passages=(PASSAGE,)), ENGLISH, UTC)
    assert "1. Has a boat. (fact, 2026-11-17)" in text
    assert "2. 2026-11-17 09:30, You: The \\*boat\\* leaks. Badly. (`m3`)" in text
    assert text.places == (
        Place(number=2, session_id=1, seq=3, label="2026-11-17: The *boat* leaks. Badly."),
    )


def test_label_of_a_long_message_is_short() -> None:
    passage = replace(PASSAGE, text="word " * 50)
    [place] = render_memory(MemoryOfAnswer(passages=(passage,)), ENGLISH, UTC).places
    assert place.label.startswith("2026-11-17: word")
    assert len(place.label) <= 50


def test_lists_of_names_are_bounded() -> None:
    names = tuple(f"file{number}" for number in range(50))
    text = render_memory(MemoryOfAnswer(files=names, tools=names), ENGLISH, UTC)
    assert text.count("file") == 2 * MOST_NAMES + ENGLISH.say("why_files").count("file")


@pytest.mark.parametrize("language", list_languages())
def test_reply_without_memory_says_so_in_every_language(language: str) -> None:
    texts = catalogue("commands", language)
    assert render_memory(MemoryOfAnswer(), texts, UTC) == texts.say("why_nothing")
    incomplete = render_memory(replace(MemoryOfAnswer(), is_whole=False), texts, UTC)
    assert incomplete == texts.say("why_missing")


async def test_reply_shows_a_bounded_number_of_messages() -> None:
    lines = [f"#{seq} person: told {seq}" for seq in range(1, 41)]
    text = await reply(
        Stores("\n".join(["Tuesday, 2026-11-17:", *lines]), said=dict.fromkeys(range(1, 41), "x"))
    )
    assert text.count("told") == len(text.places) == MOST_PASSAGES
    assert ENGLISH.say("why_missing") in text


async def test_reply_leaves_out_messages_that_are_not_stored() -> None:
    recalled = "Tuesday, 2026-11-17:\n#1 person: still there\n#2 person: erased words"
    text = await reply(Stores(recalled, said={1: "still there"}))
    assert "still there" in text
    assert "erased words" not in text
    assert ENGLISH.say("why_missing") in text


async def test_earlier_message_is_shown_only_if_it_is_found() -> None:
    recalled = "Tuesday, 2026-11-17:\nearlier person: the boat leaks"
    found = await reply(Stores(recalled, said={}, earlier=[hit(1, here=True), hit(7, here=False)]))
    assert "the boat leaks" in found
    assert found.places == (Place(number=1, session_id=7, seq=5, label="2026-11-17: the boat leaks"),)
    other_day = hit(7, here=False, at=AT.replace(day=20))
    for hits in ([], [hit(1, here=True)], [other_day]):
        assert "boat" not in await reply(Stores(recalled, said={}, earlier=hits))
