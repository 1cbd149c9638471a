"""Which passages are worth recalling, and how they are packed: the same every time, in the order of time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from shared.core.context.recall_query import question_dictionary, question_words
from shared.core.memory.recall import OF_FILES, Found, Frequencies, Search, packed, ranked, rendered
from shared.core.values.searching import PIECE_CHARS, dictionary_of, pieces, searchable

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def found(number: int, hits: tuple[int, ...], **more: object) -> Found:
    said = {
        "lane": "said", "owner": 1, "number": number, "seq": number, "text": f"Words of passage {number}.",
        "terms": 10, "hits": hits, "at": NOON + timedelta(hours=number), "author": "person", "sitting": 1,
    }  # fmt: skip
    return Found(**{**said, **more})  # type: ignore[arg-type]


def search(*passages: Found, with_word: tuple[int, ...] = (3, 40), number: int = 400) -> Search:
    of = Frequencies(passages=number, terms=10 * number, with_word=with_word)
    return Search(found=passages, frequencies=dict.fromkeys({p.lane for p in passages}, of))


def count(text: str) -> int:
    return len(text) // 4 + 1


def numbers(answer: Search, question: str = "Which harbour?") -> list[int]:
    return [item.passage.number for item in ranked(answer, question)]


def test_the_rarer_word_wins() -> None:
    assert numbers(search(found(1, (0, 1)), found(50, (1, 0))))[0] == 50


def test_who_stands_beside_a_hit_is_better_than_who_stands_alone() -> None:
    ranks = numbers(search(found(1, (1, 0)), found(2, (0, 0)), found(9, (0, 0))))
    assert ranks == [1, 2]


def test_another_sitting_is_no_neighbour() -> None:
    ranks = numbers(search(found(1, (1, 0)), found(2, (0, 0), sitting=2)))
    assert ranks == [1]


def test_the_newer_of_two_equals_comes_first() -> None:
    assert numbers(search(found(1, (1, 0)), found(50, (1, 0)))) == [50, 1]


def test_words_that_everybody_uses_recall_nothing() -> None:
    assert numbers(search(found(1, (1, 0)), with_word=(390, 0))) == []


def test_a_note_that_fits_lifts_where_it_was_made() -> None:
    note = found(7, (1, 1), lane="note", owner=7, turn=20, through_turn=20, session=1)
    ranks = ranked(search(found(1, (1, 0), turn=1), found(50, (1, 0), turn=20), note), "Which harbour?")
    said = [item.passage.number for item in ranks if item.passage.lane == "said"]
    assert said == [50, 1]


def test_the_speaker_who_is_asked_about_comes_first() -> None:
    ranks = numbers(
        search(found(1, (1, 0), speaker="Ada"), found(50, (1, 0), speaker="Bo")),
        "Which harbour does Ada like?",
    )
    assert ranks == [1, 50]


passages = st.lists(
    st.builds(
        found, st.integers(1, 60), st.tuples(st.integers(0, 3), st.integers(0, 3)),
        text=st.text(max_size=300), terms=st.integers(0, 80), sitting=st.integers(1, 3),
    ),
    max_size=25, unique_by=lambda passage: passage.number,
)  # fmt: skip


@given(passages, st.integers(0, 400), st.randoms())
def test_the_same_passages_give_the_same_text_in_the_order_of_time(
    given_passages: list[Found], limit: int, chance: object
) -> None:
    shuffled = list(given_passages)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    texts = [
        packed(ranked(search(*some), "Which harbour?"), limit_tokens=limit, count=count, session_id=1)
        for some in (given_passages, shuffled)
    ]
    assert texts[0] == texts[1]
    assert [passage.at for passage in texts[0]] == sorted(passage.at for passage in texts[0])
    assert sum(count(passage.text) for passage in texts[0]) <= limit


def test_passages_stand_under_their_day_with_their_number_and_without_secrets() -> None:
    secret = found(3, (1, 0), text="The key is sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789.")
    file = found(0, (1, 0), lane="knowledge", owner=4, path="shop.md", heading="Returns", text="Thirty days.")
    other = found(1, (1, 0), owner=2, text="Said elsewhere.", author="assistant")
    text = rendered((other, secret, file), session_id=1)
    assert text.splitlines()[0] == "2026-03-01:"
    assert "[earlier] assistant: Said elsewhere." in text
    assert "[#3] person: The key is" in text
    assert "abcdefghijklmnopqrstuvwxyz" not in text
    assert text.splitlines()[-2:] == [f"{OF_FILES}:", "[shop.md › Returns] Thirty days."]


def test_scripts_without_blanks_are_searched_by_neighbouring_characters() -> None:
    assert searchable("我喜欢猫 and Ω") == "我喜 喜欢 欢猫 and ω"


@given(st.text(max_size=3_000))
def test_pieces_are_short_and_lose_no_word(text: str) -> None:
    parts = pieces(text)
    assert all(0 < len(part) <= PIECE_CHARS for part in parts)
    assert "".join("".join(parts).split()) == "".join(text.split())


def test_a_question_is_asked_in_its_language() -> None:
    assert question_dictionary("Wann war ich in Rom?") == "german"
    assert question_dictionary("When did I go to Rome?") == "english"
    assert question_dictionary("Где мой ключ?") == "russian"
    assert dictionary_of("Rom") == "english"


def test_a_greeting_asks_for_nothing_and_questions_come_first() -> None:
    assert question_words("Hello! Thanks.") == ()
    assert question_words("I was in town. Where is my umbrella?")[:2] == ("where", "is")
