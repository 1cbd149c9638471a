"""Guesses the language of a text from its smallest words; says nothing where it cannot be sure."""

from __future__ import annotations

import re
from collections import Counter

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
_WORD = re.compile(r"[^\W\d_]+")
_LEAST_HITS = 5
_LEAD = 2.0
_CHARS_LOOKED_AT = 20_000


def language_of(text: str, *, least: int = _LEAST_HITS) -> str | None:
    """The language whose small words clearly prevail, or None."""
    hits: Counter[str] = Counter()
    for word in _WORD.findall(text[:_CHARS_LOOKED_AT].casefold()):
        hits.update(_LANGUAGES_OF.get(word, ()))
    ranked = hits.most_common(2)
    if not ranked or ranked[0][1] < least:
        return None
    second = ranked[1][1] if len(ranked) > 1 else 0
    return ranked[0][0] if ranked[0][1] >= _LEAD * second else None
