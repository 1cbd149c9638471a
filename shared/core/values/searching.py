"""Text as searchable words: passages of readable size, normalised words, and the language of a text."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import date

_WORD = re.compile(r"\w+")
PIECE_CHARS = 700
"""Most characters of a passage: long enough to state something, short enough to be quoted."""
WORDS_AT_MOST = 4_000
"""Most words that `searchable` keeps of its texts together."""
WORD_CHARS = 60
"""Most characters of a word; `words_of` cuts longer ones."""
PLAIN = "simple"
"""Name of the Postgres dictionary that leaves words unchanged."""
_DICTIONARIES = {
    "English": "english",
    "German": "german",
    "French": "french",
    "Spanish": "spanish",
    "Italian": "italian",
    "Portuguese": "portuguese",
    "Dutch": "dutch",
    "Russian": "russian",
}
DICTIONARIES = (PLAIN, *_DICTIONARIES.values())
"""Names of the Postgres dictionaries with which texts are indexed, `PLAIN` first."""
_MONTHS = {
    "english": "January February March April May June July August September October November December",
    "german": "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
    "french": "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
    "spanish": "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
    "italian": "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre "
    "dicembre",
    "portuguese": "janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro",
    "dutch": "januari februari maart april mei juni juli augustus september oktober november december",
    "russian": "января февраля марта апреля мая июня июля августа сентября октября ноября декабря",
}
_CYRILLIC = re.compile("[а-яё]", re.IGNORECASE)
_LEAST_HITS = 2
_UNSPACED = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f\u1780-\u17ff"  # Burmese, Khmer
    "\u3040-\u30ff\u31f0-\u31ff"  # Kana
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
    "\uac00-\ud7af"  # Hangul, whose words carry their endings
)
_UNSPACED_CHARACTER = re.compile(f"[{_UNSPACED}]")
_RUN = re.compile(rf"[{_UNSPACED}]+|[^\W_{_UNSPACED}]+")
_SENTENCE_END = re.compile(r"(?<=[.!?…。！？])\s+|\n+|(?<=[。！？])")
_SMALL_WORDS = {
    "English": "the and is are was were have has with that this not you they she it for from what of to will",
    "German": "und der die das ist nicht ich wir sie mit für auf ein eine einen den dem war haben wird auch",
    "French": "le les des est une dans pour pas avec que qui nous vous elle sont été cette mais je du et",
    "Spanish": "el los las una por para con está que del pero como muy más yo su hay fue son se no",
    "Italian": "il gli una per con che non sono della nel è anche ma come più io questo ha di hanno",
    "Portuguese": "os uma para com não que são está mais mas muito eu seu foi ela do da em no também",
    "Dutch": "het een van niet ik en zijn met voor wordt hebben ook maar deze naar wij die op aan heeft",
    "Polish": "nie jest się na że do jak ale już tak był była są przez dla oraz ich który co to",
    "Russian": "не что это как на был была они мы для от но есть его уже так из и в с",
    "Ukrainian": "не що це як на був була вони ми для від але є його вже так із і й та",
}
_LANGUAGES_OF: dict[str, tuple[str, ...]] = {}
for _language, _words in _SMALL_WORDS.items():
    for _word in _words.split():
        _LANGUAGES_OF[_word] = (*_LANGUAGES_OF.get(_word, ()), _language)
_LETTERS = re.compile(r"[^\W\d_]+")
_LEAST_SMALL_WORDS = 5
_LEAD = 2.0
_CHARS_LOOKED_AT = 20_000


def words_of(text: str) -> Iterator[str]:
    """Yield the words of a text in order, in lower case, repeated words included, each cut to 60 characters.

    Scripts without blanks between words, such as Chinese, give each pair of neighbouring characters.
    """
    for run in _RUN.findall(unicodedata.normalize("NFKC", text).casefold()):
        if is_unspaced(run[0]) and len(run) > 1:
            yield from (run[at : at + 2] for at in range(len(run) - 1))
        else:
            yield run[:WORD_CHARS]


def searchable(*texts: str) -> str:
    """Return the first 4,000 words of the texts, separated by blanks, as Postgres can index them."""
    words: list[str] = []
    for text in texts:
        words.extend(words_of(text))
    return " ".join(words[:WORDS_AT_MOST])


def dictionary_of(text: str, *, otherwise: str = "", least: int = _LEAST_HITS) -> str:
    """Return the name of the Postgres dictionary for a text.

    It is that of the text's clear language (`simple` if Postgres has none for it), else `otherwise`, else
    `russian` for a text with Cyrillic letters and `english` for others. `least` is the number of function
    words that make a language clear.
    """
    language = language_of(text, least=least)
    if language:
        return _DICTIONARIES.get(language, PLAIN)
    return otherwise or ("russian" if _CYRILLIC.search(text) else "english")


def date_words(day: date, dictionary: str = PLAIN) -> str:
    """Return a day as people write it in the dictionary's language, such as `20 November 2026`.

    Dictionaries without names of months give English.
    """
    months = _MONTHS.get(dictionary, _MONTHS["english"]).split()
    return f"{day.day} {months[day.month - 1]} {day.year}"


def prevailing_dictionary(texts: Iterable[str]) -> str:
    """Return the Postgres dictionary for the common language of short texts; empty if it is unclear."""
    language = language_of(" ".join(texts))
    return _DICTIONARIES.get(language, PLAIN) if language else ""


def pieces(text: str, *, chars: int = PIECE_CHARS) -> tuple[str, ...]:
    """Return the text in parts of at most `chars` characters, split between sentences where possible.

    A longer sentence is split at a blank. A blank text has no parts.
    """
    text = text.strip()
    if len(text) <= chars:
        return (text,) if text else ()
    made: list[str] = []
    held = ""
    for sentence in _sentences(text, chars):
        if held and len(held) + 1 + len(sentence) > chars:
            made.append(held)
            held = sentence
        else:
            held = f"{held} {sentence}" if held else sentence
    return (*made, held) if held else tuple(made)


def _sentences(text: str, chars: int) -> Iterator[str]:
    for sentence in _SENTENCE_END.split(text):
        sentence = sentence.strip()
        while len(sentence) > chars:
            cut = sentence.rfind(" ", chars // 2, chars)
            cut = cut if cut > 0 else chars
            yield sentence[:cut].strip()
            sentence = sentence[cut:].strip()
        if sentence:
            yield sentence


def is_unspaced(char: str) -> bool:
    """Return whether a character belongs to a script without blanks between words."""
    return not char.isascii() and _UNSPACED_CHARACTER.match(char) is not None


def normalise(text: str) -> str:
    """Return the words of a text in lower case, without punctuation, with single blanks, for comparisons."""
    return " ".join(_WORD.findall(unicodedata.normalize("NFKC", text).casefold()))


def language_of(text: str, *, least: int = _LEAST_SMALL_WORDS) -> str | None:
    """Return the English name of a text's language, such as "German", by its function words; None if unclear.

    A language is clear with at least `least` of them and twice as many as the second. Only the first 20,000
    characters are read.
    """
    hits: Counter[str] = Counter()
    for word in _LETTERS.findall(text[:_CHARS_LOOKED_AT].casefold()):
        hits.update(_LANGUAGES_OF.get(word, ()))
    ranked = hits.most_common(2)
    if not ranked or ranked[0][1] < least:
        return None
    second = ranked[1][1] if len(ranked) > 1 else 0
    return ranked[0][0] if ranked[0][1] >= _LEAD * second else None
