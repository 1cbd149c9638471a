"""Hints in a summary where to search: its topics as phrases, and exact names with the words around them."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from shared.core.compaction.summary_filters import may_be_quoted
from shared.core.session.ledger import Ledger, Topic
from shared.core.session.session import Entry, turns_of
from shared.core.values.identifiers import URL
from shared.core.values.messages import text_of
from shared.core.values.secrets_filter import REDACTED, redact

CLAUSE_CHARS = 60
"""Most characters of a clause; longer ones are left out."""
WORDS_BEFORE, WORDS_AFTER, LEAST_WORDS = 4, 3, 2
"""Words of a clause before the name; words after it, used if fewer than `LEAST_WORDS` come before."""
PHRASE_WORDS = 6
"""Most words of a phrase that labels a topic."""
WORDS_LOOKED_AT = 400
"""Most words of a part between two punctuation marks that are searched for a phrase."""
_BREAK = re.compile(r"[,;!?…()\[\]{}<>|\"“”„«»*`\n。！？，；：、]|[.:](?=\s|$)| [-–—] ")
"""Punctuation that ends a clause; a point inside a number or an address does not match."""
_WORD = re.compile(r"[^\W\d_]+")
_CODE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)


def find_clauses(names: Sequence[str], entries: Iterable[Entry]) -> dict[str, str]:
    """Return, by name, the clause in which each name first occurs; names without a clause are missing.

    A clause is the name with a few words around it. Messages of the person are searched before the
    assistant's, each in order; URLs have no clause, and secrets are removed first.
    """
    left = dict.fromkeys(name for name in names if not URL.fullmatch(name))
    found: dict[str, str] = {}
    for entry in sorted(
        (entry for entry in entries if entry.author in ("person", "assistant")),
        key=lambda entry: (entry.author != "person", entry.seq),
    ):
        if not left:
            break
        text = text_of(entry.blocks)
        named = [name for name in left if name in text]
        if not named:
            continue
        readable = redact(text)
        for name in named:
            clause = clause_of(name, readable)
            if clause and may_be_quoted(clause):
                found[name] = clause
                del left[name]
    return found


def clause_of(name: str, text: str) -> str:
    """Return a name with up to four words before its first whole occurrence, within the same clause.

    Up to three words after it are taken only if fewer than two come before. Empty if the name does not occur,
    has no words around it, or the clause exceeds 60 characters.
    """
    place = re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text)
    if place is None:
        return ""
    before = _BREAK.split(text[max(0, place.start() - 4 * CLAUSE_CHARS) : place.start()])[-1].split()
    after = _BREAK.split(text[place.end() : place.end() + 4 * CLAUSE_CHARS])[0].split()
    lead = before[-WORDS_BEFORE:]
    trail = after[:WORDS_AFTER] if len(lead) < LEAST_WORDS else []
    if not lead and not trail:
        return ""
    clause = " ".join((*lead, name, *trail))
    return clause if len(clause) <= CLAUSE_CHARS else ""


def phrase_with(texts: Iterable[str], weights: Mapping[str, float]) -> str:
    """Return the shortest run of words with the highest total weight; empty if no run has two weighted words.

    `weights` has lower-case words. A run has at most 6 words and 60 characters and crosses no punctuation.
    """
    best, best_weight = "", 0.0
    for text in texts:
        for part in _BREAK.split(_CODE.sub("\n", text)):
            words = part.split()[:WORDS_LOOKED_AT]
            keys = [_find_weighed(word, weights) for word in words]
            places = [at for at, key in enumerate(keys) if key]
            for index, first in enumerate(places):
                held: dict[str, float] = {}
                for last in places[index : index + PHRASE_WORDS]:
                    if last >= first + PHRASE_WORDS:
                        break
                    held[keys[last]] = weights[keys[last]]
                    weight = sum(held.values())
                    if len(held) > 1 and weight > best_weight:
                        phrase = " ".join(words[first : last + 1])
                        if len(phrase) <= CLAUSE_CHARS:
                            best, best_weight = phrase, weight
    return best if best and may_be_quoted(best) else ""


def _find_weighed(word: str, weights: Mapping[str, float]) -> str:
    return next((part for part in _WORD.findall(word.casefold()) if part in weights), "")


def with_clauses(ledger: Ledger, entries: Iterable[Entry]) -> Ledger:
    """Return the ledger with a clause for each of its identifiers that occurs in the entries with words
    around it.

    Present clauses stay; those of names that are no longer identifiers are dropped.
    """
    known = {name: clause for name, clause in ledger.clauses if name in ledger.identifiers}
    new = [name for name in ledger.identifiers if name not in known]
    return replace(ledger, clauses=tuple((known | find_clauses(new, entries)).items()))


TOPICS_AT_MOST = 8
"""Most topics that a summary lists."""
_TURNS_PER_TOPIC = 6
_LABEL_WORDS = 12
"""Most words that decide about the label of a stretch of turns."""
_JOINED_LABELS = 3
_CANDIDATES = 60
_LEAST_MESSAGES, _LONG = 2, 8
_COMMON = """
able about absolutely according achieve actually added adding addition additional additionally after again
allow allows already also always amazing anything approach approaches around aspects available awesome back
based basic because become been before being below best better both break brief briefly called cannot case
cases certain certainly check clear clearly come comes common completely consider consistent correct correctly
could create creating current currently definitely depending describe described describing detail detailed
details difference different directly does doing done down during each easier easily effective effectively
either else enhance enough ensure ensures ensuring entire especially even ever every everything exactly
example examples excited exciting existing expected experience explain extra fact feature features feel
feeling find fine first fits focus following follows form free from full fully function functions further
gave general generally getting give given gives glad going gonna good great guide handle handling happy have
having hear help helpful helps here high highlight highlighting hope however idea ideas implement
implementation implementing important improve improved improvement improvements improving include included
includes including information initial inspiring instead into involves issue issues just keep kind know large
last later latest learn least leave level like likely line lines list little long look looking looks love made
main maintain maintaining make makes making manage managing many match maybe mean meaning means message might
more most move much multiple need needed needs never next nice normal note number obviously often okay once
only optional option options original other others otherwise over overall own part particular parts people
perfect perhaps place plan please point points possible potential potentially practice practices pretty
previous probably problem problems process project proper properly provide provided provides providing quick
quickly quite rather ready real really reason recommend regarding related relevant required result results
right said same scenario scenarios second section several share should show showing shows similar simple
simply since single sign situation slightly small some someone something soon sounds specific specifically
spot start started starting step steps still structure stuff style success successful successfully such
suggest suggestions summary support sure take takes taking talk task tasks team tell than thank thanks that
their them themselves then there therefore these they thing things think this those though three through
throughout time times today together tomorrow took total toward towards track tried true trying type types
typically under understand understanding unless until update updated updates updating used useful user users
uses using usually value valuable various very want wanted wants ways week well went were what whatever when
where whether which while whole will with within without word words work working works would write writing
wrong years yeah yesterday your yourself aber alle
auch dann dass denn dich diese doch eine einen etwas gerade gestern habe haben heute hier immer jetzt kann
mehr mein meine morgen muss nach nicht noch nichts oder schon sehr sein sind über warum weil wenn werden
wieder wird wirklich avec bien cela cette comme dans demain elle encore être faire hier mais même merci
moins nous pour quand sont tout très vous ahora algo antes aquí bien bueno como cuando desde donde esta este
gracias hacer hasta hola mañana mucho nada para pero porque puedo siempre sobre también tengo tiene todo
вчера где для если есть завтра когда меня можно надо очень потом почему просто сегодня спасибо тебя тоже
только хорошо чтобы этого
"""
_SAYS_LITTLE = frozenset(_COMMON.split())
"""English words that fit any conversation; common words of other languages are recognised by their spread."""
_LONG_WORD = re.compile(r"\b[^\W\d_]{4,20}\b")
_JOINT = "; "


def topics_of(entries: Sequence[Entry], former: Sequence[Topic] = ()) -> tuple[Topic, ...]:
    """Return the former topics and those of the entries, in order, at most 8; the oldest neighbours are
    joined.

    A label is a phrase of the person; it is empty if a stretch of turns has no clear subject.
    """
    stretches = _stretches(turns_of(entries))
    words = [_words(stretch) for stretch in stretches]
    spread = Counter(word for counted in words for word in counted)
    new = [_topic(*pair, spread, len(stretches)) for pair in zip(stretches, words, strict=True)]
    topics = [*map(_without_scraps, former), *new]
    while len(topics) > TOPICS_AT_MOST:
        topics = _with_oldest_joined(topics)
    return tuple(topics)


def _stretches(turns: Sequence[tuple[Entry, ...]]) -> list[list[Entry]]:
    """Return the entries divided into stretches of about equally many turns, at most 8."""
    count = max(1, min(TOPICS_AT_MOST, round(len(turns) / _TURNS_PER_TOPIC)))
    size = math.ceil(len(turns) / count) if turns else 1
    return [[entry for turn in turns[at : at + size] for entry in turn] for at in range(0, len(turns), size)]


def _words(stretch: Sequence[Entry]) -> Counter[str]:
    """Return in how many messages each word occurs that the person used and that was used again.

    Only such words indicate the subject of a stretch of turns.
    """
    said: dict[str, Counter[str]] = {"person": Counter(), "assistant": Counter()}
    for entry in stretch:
        if entry.author in said:
            text = _CODE.sub(" ", redact(text_of(entry.blocks))).replace(REDACTED, " ").casefold()
            said[entry.author].update(set(_LONG_WORD.findall(text)) - _SAYS_LITTLE)
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
    telling = {word: _weigh_word(word, words, spread, total) for word in often}
    ranked = sorted(often, key=lambda word: (-telling[word], word))[:_LABEL_WORDS]
    said = (redact(text_of(entry.blocks)) for entry in stretch if entry.author == "person")
    return Topic(
        label=phrase_with(said, {word: telling[word] for word in ranked}),
        from_turn=stretch[0].turn,
        through_turn=stretch[-1].turn,
        from_seq=min(entry.seq for entry in stretch),
        through_seq=max(entry.seq for entry in stretch),
    )


def _weigh_word(word: str, words: Counter[str], spread: Counter[str], total: int) -> float:
    """Return how well a word describes a stretch: frequent here, rare in other stretches, and long."""
    rare = math.log((total + 1) / spread[word]) + 0.1
    return rare * math.sqrt(words[word]) * min(len(word), _LONG)


def _without_scraps(topic: Topic) -> Topic:
    """Return the topic without a label of single words, as earlier versions wrote it."""
    scraps = topic.label and all(" " not in word for word in topic.label.split(", "))
    return replace(topic, label="") if scraps else topic


def _with_oldest_joined(topics: Sequence[Topic]) -> list[Topic]:
    first, second = topics[0], topics[1]
    labels = dict.fromkeys((*_parts(first.label), *_parts(second.label)))
    joined = replace(
        first,
        label=_JOINT.join([*labels][-_JOINED_LABELS:]),
        through_turn=max(first.through_turn, second.through_turn),
        from_seq=min(first.from_seq, second.from_seq),
        through_seq=max(first.through_seq, second.through_seq),
    )
    return [joined, *topics[2:]]


def _parts(label: str) -> list[str]:
    return label.split(_JOINT) if label else []
