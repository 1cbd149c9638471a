"""Says what each stretch of a hidden conversation was about, and where it stands: hints for looking it up."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from shared.core.session.ledger import Topic
from shared.core.session.session import Entry, turns_of
from shared.core.values.messages import text_of
from shared.core.values.secrets_filter import REDACTED, redact

TOPICS_AT_MOST = 8
_TURNS_PER_TOPIC = 6
_LABEL_WORDS = 3
_CANDIDATES = 60
_SHORTEST_WORD = 4
_WORD = re.compile(r"\b[^\W\d_]{4,20}\b")


def topics_of(entries: Sequence[Entry], former: Sequence[Topic] = ()) -> tuple[Topic, ...]:
    """Former topics and those of the entries, at most `TOPICS_AT_MOST`: old neighbours become one."""
    stretches = _stretches(turns_of(entries))
    words = [_words(stretch) for stretch in stretches]
    spread = Counter(word for counted in words for word in counted)
    new = [
        _topic(stretch, counted, spread, len(stretches))
        for stretch, counted in zip(stretches, words, strict=True)
        if counted
    ]
    topics = [*former, *new]
    while len(topics) > TOPICS_AT_MOST:
        topics = _with_oldest_joined(topics)
    return tuple(topics)


def _stretches(turns: Sequence[tuple[Entry, ...]]) -> list[list[Entry]]:
    """Equal numbers of turns: a hint has to be near, not exact."""
    count = max(1, min(TOPICS_AT_MOST, round(len(turns) / _TURNS_PER_TOPIC)))
    size = math.ceil(len(turns) / count) if turns else 1
    return [[entry for turn in turns[at : at + size] for entry in turn] for at in range(0, len(turns), size)]


def _words(stretch: Sequence[Entry]) -> Counter[str]:
    """How often each word was said; a person's words count twice."""
    counted: Counter[str] = Counter()
    for author, times in (("person", 2), ("assistant", 1)):
        said = "\n".join(text_of(entry.blocks) for entry in stretch if entry.author == author)
        words = _WORD.findall(redact(said).replace(REDACTED, " ").casefold())
        counted.update(words * times)
    return counted


def _topic(stretch: Sequence[Entry], words: Counter[str], spread: Counter[str], total: int) -> Topic:
    often = [word for word, _ in words.most_common(_CANDIDATES)]
    ranked = sorted(often, key=lambda word: (-_weight(word, words, spread, total), word))
    return Topic(
        label=", ".join(ranked[:_LABEL_WORDS]),
        from_turn=stretch[0].turn,
        through_turn=stretch[-1].turn,
        from_seq=min(entry.seq for entry in stretch),
        through_seq=max(entry.seq for entry in stretch),
    )


def _weight(word: str, words: Counter[str], spread: Counter[str], total: int) -> float:
    """Said often here and nowhere else; long words say more than short ones."""
    rare = math.log((total + 1) / spread[word]) + 0.1
    return rare * math.sqrt(words[word]) * min(len(word), 9) / _SHORTEST_WORD


def _with_oldest_joined(topics: Sequence[Topic]) -> list[Topic]:
    first, second = topics[0], topics[1]
    labels = [*first.label.split(", ")[:2], *second.label.split(", ")[:1]]
    joined = replace(
        first,
        label=", ".join(dict.fromkeys(labels)),
        through_turn=max(first.through_turn, second.through_turn),
        from_seq=min(first.from_seq, second.from_seq),
        through_seq=max(first.through_seq, second.through_seq),
    )
    return [joined, *topics[2:]]
