"""Hints where to look things up: what a stretch was about, and its numbers."""

from __future__ import annotations

from dataclasses import replace

from shared.core.compaction.hints import TOPICS_AT_MOST, topics_of, with_clauses
from shared.core.compaction.next_ledger import (
    LedgerPatch,
    NewItem,
    apply_patch,
    group_parts,
    join_ledgers,
    shorten_ledger,
)
from shared.core.privacy.erasure import drop_sources
from shared.core.session.ledger import Ledger, Topic, ledger_from_json, ledger_to_json
from shared.core.session.summary import render_summary
from shared.core.values.identifiers import identifiers_of
from tests.kit.builders import exchange, exchanges, words

BOATS = [e for n in range(1, 7) for e in exchange(n, "The ferry to the island sails often.", "Boats, yes.")]
CAKES = [e for n in range(7, 13) for e in exchange(n, "We bake a cake with almonds.", "Almonds are good.")]


def test_each_stretch_is_named_by_what_was_said_there_and_nowhere_else() -> None:
    first, second = topics_of([*BOATS, *CAKES])
    assert "ferry" in first.label
    assert "almonds" in second.label
    assert {first.label, second.label} == {"ferry to the island sails", "bake a cake with almonds"}
    assert (first.from_turn, first.through_turn, first.from_seq, first.through_seq) == (1, 6, 1, 12)
    assert (second.from_turn, second.through_seq) == (7, 24)


def test_a_hint_names_what_both_talk_about_and_no_filler() -> None:
    garden = [
        ("Yesterday I dug a pond behind the greenhouse.", "How inspiring! A pond keeps the greenhouse cool."),
        ("The pond needs a pump, I really think.", "A pump with a filter would be good."),
        ("Definitely. Yesterday was tiring.", "Rest today, then look for the pump."),
    ]
    chatter = [("That is amazing, thanks!", "Really glad to help."), ("Everything is great.", "Sounds good!")]
    log = [e for n, pair in enumerate(garden * 2 + chatter * 3, 1) for e in exchange(n, *pair)]
    said, empty = topics_of(log)
    assert said.label == "pond behind the greenhouse"
    assert empty.label == ""
    shown = render_summary(Ledger(narrative="n", topics=(said, empty)))
    assert shown.count("\n- ") == 1


def test_exact_names_exclude_scraps_pieces_and_known_text() -> None:
    said = """I paid 37 for it at 10:30 in 2019, or 1,250 with shipping, says Maren Solberg. Write to Maren,
order PX-4471 of 2031-05-08, account 5512-88210, at https://example.org/loom. It is in Bodø."""
    found = identifiers_of(said)
    assert {"37", "10:30", "2019", "1,250", "4471", "Maren"} <= set(found)
    kept = apply_patch(Ledger(), LedgerPatch(narrative="They live in Bodø."), identifiers=found)
    assert set(kept.identifiers) == {
        "Maren Solberg", "PX-4471", "2031-05-08", "5512-88210", "https://example.org/loom", "Bodø",
    }  # fmt: skip
    assert "Bodø" not in render_summary(kept).partition("## Exact")[2]
    assert "Maren Solberg" in render_summary(kept)


def test_former_topics_stay_and_the_oldest_become_one() -> None:
    former = topics_of(BOATS)
    assert topics_of(CAKES, former)[0] == former[0]
    many = topics_of(exchanges(200, first=13), topics_of([*BOATS, *CAKES]))
    assert len(many) == TOPICS_AT_MOST
    assert many[0].from_turn == 1
    assert [t.from_turn for t in many[1:]] == [t.through_turn + 1 for t in many[:-1]], "no gap"


def test_nothing_said_has_no_topic_and_secrets_are_no_label() -> None:
    assert topics_of([]) == ()
    said = topics_of(exchange(1, "password: hunterx!2 lighthouse", "ok"))
    assert "hunter" not in said[0].label


def test_a_ledger_shows_where_to_look() -> None:
    topic = Topic(label="ferry, island", from_turn=1, through_turn=6, from_seq=1, through_seq=12)
    shown = render_summary(Ledger(narrative="n", topics=(topic,), identifiers=("Bob",)))
    assert shown == "n\n\n## Where to look\n- ferry, island: #1 to #12\n\n## Exact names and numbers\nBob"


def test_topic_of_single_words_has_no_label() -> None:
    said = "special dreams"
    apart = [e for n in range(1, 5) for e in exchange(n, f"It was {said.split()[n % 2]}.", f"Oh, {said}!")]
    assert [topic.label for topic in topics_of(apart)] == [""]
    old = Topic(label="special, dreams, stay", from_turn=1, through_turn=6, from_seq=1, through_seq=12)
    kept = topics_of(BOATS, (old,))
    assert [topic.label for topic in kept] == ["", "ferry to the island sails"]
    assert "special" not in render_summary(Ledger(narrative="n", topics=kept))


def test_exact_names_stand_with_their_clause() -> None:
    said = exchange(1, "Hi! I bought a bicycle called Mistralino, at last.", "Nice.")
    said += exchange(2, "Write to Maren Solberg. My password: Hunter!2xyz. PX-4471 is my order.", "Ok.")
    ledger = Ledger(identifiers=("Mistralino", "Maren Solberg", "PX-4471", "https://example.org", "Bob"))
    made = with_clauses(ledger, said)
    assert dict(made.clauses) == {
        "Mistralino": "bought a bicycle called Mistralino",
        "Maren Solberg": "Write to Maren Solberg",
        "PX-4471": "PX-4471 is my order",
    }
    shown = render_summary(replace(made, narrative="n"))
    assert "bought a bicycle called Mistralino · Write to Maren Solberg · PX-4471 is my order" in shown
    assert ledger_from_json(ledger_to_json(made)) == made
    assert with_clauses(made, []) == made
    assert drop_sources(made, [1]).clauses == ()


def part(*texts: str, narrative: str = "n") -> Ledger:
    add = tuple(NewItem(kind="fact", text=text) for text in texts)
    return apply_patch(Ledger(), LedgerPatch(narrative=narrative, add=add), identifiers=texts)


def test_records_are_joined_without_losing_or_doubling_an_item() -> None:
    whole = join_ledgers([part("a", "b"), part("B", "c", narrative="m")], "ledger")
    assert [(item.id, item.text) for item in whole.items] == [("f1", "a"), ("f2", "b"), ("f3", "c")]
    assert whole.narrative == "n\nm"
    assert whole.identifiers == ("a", "b", "B", "c")


def test_without_a_model_each_narrative_keeps_its_first_words() -> None:
    whole = join_ledgers([part("a", narrative="old " * 100), part("b", narrative="new " * 100)], "ledger")
    short = shorten_ledger(whole, 2_000, words).narrative
    assert short.split().count("old") == short.split().count("new") == 60


def test_groups_hold_neighbours_and_at_least_two() -> None:
    parts = [part("word " * 20, narrative=f"{n}") for n in range(5)]
    groups = group_parts(parts, 100, words)
    assert [p for group in groups for p in group] == parts
    assert all(len(group) >= 2 for group in groups[:-1])
    assert len(group_parts(parts, 1, words)) == 3
