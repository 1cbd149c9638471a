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
_LEAST_MESSAGES, _LONG = 2, 8
_COMMON = """
about after again always amazing anything around awesome back been before being best better both check come
could definitely difference doing done down each else enough even ever every everything excited exciting
experience feel feeling find first free from gave getting give glad going gonna good great happy have having
hear help here hope inspiring into just keep kind know last later like little long look looking love made
make making many maybe mean more most much need never next nice okay only other over part people place
pretty really right said same should show some someone something soon sounds spot start started starting
still stuff such sure take taking talk tell than thank thanks that their them then there these they thing
things think this those though time today together tomorrow took tried trying very want wanted wants week
well went were what when where which while will with without work would years yeah yesterday your aber alle
auch dann dass denn dich diese doch eine einen etwas gerade gestern habe haben heute hier immer jetzt kann
mehr mein meine morgen muss nach nicht noch nichts oder schon sehr sein sind über warum weil wenn werden
wieder wird wirklich avec bien cela cette comme dans demain elle encore être faire hier mais même merci
moins nous pour quand sont tout très vous ahora algo antes aquí bien bueno como cuando desde donde esta este
gracias hacer hasta hola mañana mucho nada para pero porque puedo siempre sobre también tengo tiene todo
вчера где для если есть завтра когда меня можно надо очень потом почему просто сегодня спасибо тебя тоже
только хорошо чтобы этого
"""
_SAYS_LITTLE = frozenset(_COMMON.split())
"""Words that fit any conversation; what of other languages is as common falls out by standing everywhere."""
_WORD = re.compile(r"\b[^\W\d_]{4,20}\b")


def topics_of(entries: Sequence[Entry], former: Sequence[Topic] = ()) -> tuple[Topic, ...]:
    """Former topics and those of the entries, at most `TOPICS_AT_MOST`: old neighbours become one.

    A stretch in which nothing is talked about for long has no label.
    """
    stretches = _stretches(turns_of(entries))
    words = [_words(stretch) for stretch in stretches]
    spread = Counter(word for counted in words for word in counted)
    new = [_topic(*pair, spread, len(stretches)) for pair in zip(stretches, words, strict=True)]
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
    """In how many messages each word is that was said by the person and taken up by the assistant, or again.

    A word that is said once, or by one side alone, is seldom what a stretch is about.
    """
    said: dict[str, Counter[str]] = {"person": Counter(), "assistant": Counter()}
    for entry in stretch:
        if entry.author in said:
            text = redact(text_of(entry.blocks)).replace(REDACTED, " ").casefold()
            said[entry.author].update(set(_WORD.findall(text)) - _SAYS_LITTLE)
    person, assistant = said["person"], said["assistant"]
    return Counter(
        {
            word: times + assistant[word]
            for word, times in person.items()
            if (assistant[word] or times > 1) and times + assistant[word] >= _LEAST_MESSAGES
        }
    )


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
    return rare * math.sqrt(words[word]) * min(len(word), _LONG)


def _with_oldest_joined(topics: Sequence[Topic]) -> list[Topic]:
    first, second = topics[0], topics[1]
    labels = [word for topic, most in ((first, 2), (second, 1)) for word in _parts(topic.label)[:most]]
    joined = replace(
        first,
        label=", ".join(dict.fromkeys(labels)),
        through_turn=max(first.through_turn, second.through_turn),
        from_seq=min(first.from_seq, second.from_seq),
        through_seq=max(first.through_seq, second.through_seq),
    )
    return [joined, *topics[2:]]


def _parts(label: str) -> list[str]:
    return label.split(", ") if label else []
