"""Analysis of a message for recall: its words and language, its subject, and whether it asks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from shared.core.values.searching import PLAIN, dictionary_of, words_of

QUESTION_WORDS = 96
"""Most different words of a message that are searched for; enough for a long message, not for a
pasted page.
"""
READ_CHARS = 16_000
"""Characters of a message that are searched for questions, as many as the model sees of a long one."""
SMALL_TALK_CHARS = 60
"""Most characters of a text that can be small talk alone."""
_ABOUT = 6
"""Words after "you" among which a verb of telling is searched for."""
_END = re.compile(r"[!?。！？؟\n]|(?<!\b[A-ZА-Я])(?<!\b[A-ZА-Я]\w)(?<!\b[A-ZА-Я]\w\w)\.(?!\w)")
"""End of a sentence; a point inside a number or after an abbreviation does not match: 5.3.0, Dr. Seuss."""
_MARKS = "?？؟"


def _by_dictionary(**words: str) -> dict[str, tuple[str, ...]]:
    return {dictionary: tuple(of.split()) for dictionary, of in words.items()}


_INTERROGATIVES = _by_dictionary(
    english="who what when where which why how whose",
    german="wer was wann wo welche welcher welches warum wie",
    french="qui que quoi quand où quel quelle pourquoi comment",
    spanish="quién qué cuándo dónde cuál cómo",
    italian="chi che cosa quando dove quale perché come",
    portuguese="quem que quando onde qual como porque",
    dutch="wie wat wanneer waar welke waarom hoe",
    russian="кто что когда где какой какая почему как",
)
_SMALL_WORDS = _by_dictionary(
    english="did does was were has have would could the is my",
    german="hat habe hast ist wurde der das ich mein",
    french="est le les ai avons mon ma",
    spanish="por el los es está mi",
    italian="il gli è ho hai mi mio",
    portuguese="os é está foi meu",
    dutch="het een is heeft mijn",
    russian="это мой моя я",
)
_FIRST_PERSON = _by_dictionary(
    english="i my me mine myself we our ours us",
    german="ich mein meine meinen meinem meiner meines mir mich wir unser unsere unseren unserem uns",
    french="je j mon ma mes moi nous notre nos",
    spanish="yo mi mis mí me nosotros nosotras nuestro nuestra nuestros nuestras nos",
    italian="io mio mia miei mie mi ho noi nostro nostra nostri nostre",
    portuguese="eu meu minha meus minhas me mim nós nosso nossa nossos nossas",
    dutch="ik mijn mij me wij ons onze",
    russian="я мой моя моё мое мои моего моей моих мою меня мне мной мы наш наша наше наши нас нам",
)
_SECOND_PERSON = _by_dictionary(
    english="you your yours",
    german="du dein deine deinen deinem deiner dir dich",
    french="tu vous ton ta tes toi te votre vos",
    spanish="tú tu tus te has usted",
    italian="tu tuo tua tuoi tue ti hai avevi",
    portuguese="você tu teu tua teus tuas",
    dutch="jij je jouw u uw",
    russian="ты вы твой твоя твоё твои тебя тебе ваш ваша ваше ваши вас вам",
)
_REQUESTS = _by_dictionary(
    english="can could will would should",
    german="kannst könntest würdest",
    french="peux pourrais pouvez pourriez",
    spanish="puedes podrías puede podría",
    italian="puoi potresti",
    portuguese="pode poderia podes",
    dutch="kan kun kunt zou",
    russian="можешь можете могла мог",
)
"""Verbs that make a question with "you" a new request instead of a question about the past."""
_TOLD = _by_dictionary(
    english="tell told recommend suggest advis say said mention propos explain",
    german="gesagt sagtest erzähl empfohlen empfahlst vorgeschlagen geraten erwähn erklär",
    french="dit recommand conseill suggér propos expliqu mentionn",
    spanish="dij dicho recomend suger aconsej mencion propus propuest explic",
    italian="dett consiglia suggeri raccomanda propost spiega menziona",
    portuguese="disse recomend suger aconselh mencion propôs explic",
    dutch="gezegd verteld aangeraden aanbevolen voorgesteld genoemd uitgelegd",
    russian="сказал говорил рекомендовал порекомендовал посоветовал советовал предложил объяснил упом",
)
"""Beginnings of verbs such as "told" and "recommended"."""
_TOLD_BY_YOU = re.compile(r"(?:recomend|dij|diss|suger|aconsej|aconselh|mencion|explic|propus)\w{0,3}ste")
_SMALL_TALK = """
ok okay okey yes yeah yep no nope sure really know mean think lol please thanks thank thx hello hi hey bye
ja nein danke dankeschön bitte hallo tschüss oui non merci salut bonjour bonsoir mdr sí gracias hola adiós
ciao grazie prego sì obrigado obrigada olá não tchau valeu bedankt dankjewel dank hoi doei nee
nie dzięki dziękuję cześć hej спасибо привет пока да нет ага ок окей ладно хорошо пожалуйста
дякую привіт добре гаразд teşekkür teşekkürler ederim sağ ol evet hayır tamam merhaba selam
terima kasih makasih tidak oke cảm ơn vâng شكرا شكراً شكرًا مرحبا نعم حسنا حسناً تمام أوكي
مرسی ممنون ممنونم سلام باشه متشکرم اوکی תודה שלום בסדר אוקיי סבבה धन्यवाद शुक्रिया नमस्ते ठीक है ओके
"""
_SMALL_TALK_WORDS = frozenset(words_of(_SMALL_TALK))
_UNSPACED_SMALL_TALK = re.compile(
    r"(?<!\w)(?:谢谢你?们?|謝謝你?們?|多谢|多謝|感谢|感謝|你好|您好|再见|再見|好的?|是的|不客气|不客氣|嗯+|对的?|對的?|行"
    "|ありがとう(?:ございます|ございました)?|どうも|こんにちは|おはよう|こんばんは|はい|いいえ|わかりました|了解(?:です)?|なるほど"
    "|감사합니다|감사해요|고마워요?|고맙습니다|안녕하세요|안녕|네+|예|아니요|알겠습니다|알겠어요?|오케이|그래요?|좋아요?"
    r")(?!\w)"
)
_LAUGHTER = re.compile(r"a?(?:h[aeiou]|j[aei]|х[аеи]|rs|k|w|ה|ח|ه|خ|ハ|は|哈|呵|笑|하|호|히|ᄏ|ᄒ){2,}\w?|笑")
_SUBJECTS = frozenset(words_of("i we ich wir je j nous yo io ho noi eu nós ik wij я мы"))

Author = Literal["person", "assistant", ""]
"""Author of a text that a question is about; empty if it is about another subject."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Words, language and subject of a message, as recall searches for them.

    `text` is the part of the message that was read.
    """

    text: str
    words: tuple[str, ...]
    """Different words of the message, those of its questions first; empty for a greeting, thanks
    or laughter.
    """
    asked: int
    """Number of leading words in `words` that belong to its questions; all of them if it asks nothing."""
    dictionary: str = PLAIN
    """Name of the Postgres dictionary whose stop words are ignored."""
    about: Author = ""
    """Author of the text that the question is about: the person for "my …", the assistant for "you told me";
    else empty.
    """
    sentences: tuple[frozenset[str], ...] = ()
    """Words of each question of the message; of each sentence if it asks nothing."""
    asks: bool = True
    """False if the message only states something, or asks about the assistant itself."""


def read_question(text: str) -> Question:
    """Return the analysis of a message, made by word lists without a model.

    Of a text above 16,000 characters, only the first and last 8,000 are read.
    """
    if len(text) > READ_CHARS:
        text = f"{text[: READ_CHARS // 2]}\n{text[-READ_CHARS // 2 :]}"
    asked_ones = tuple(_questions(text))
    asked = " ".join(asked_ones)
    asked = asked if _telling_words(asked) else ""
    dictionary = question_dictionary(text)
    spoken = tuple(words_of(asked or text))
    told = _asks_what_was_told(spoken, dictionary)
    about: Author = "assistant" if told else _find_subject(spoken, dictionary)
    asks = (told or about != "assistant") and bool(asked or _begins_to_ask(text, spoken, dictionary))
    words = _telling_words(asked, text)
    return Question(
        text=text,
        words=words,
        asked=len(_telling_words(asked)) if asks and asked else len(words),
        dictionary=dictionary,
        about=about,
        sentences=_sentences(asked_ones if asks and asked else _END.split(text)),
        asks=asks,
    )


def _questions(text: str) -> Iterator[str]:
    begin = 0
    for end in _END.finditer(text):
        if end[0] in _MARKS:
            yield text[begin : end.start()]
        begin = end.end()


def _sentences(texts: Iterable[str]) -> tuple[frozenset[str], ...]:
    return tuple(words for words in map(frozenset, map(words_of, texts)) if words)


def question_dictionary(text: str) -> str:
    """Return the Postgres dictionary of the language of a question, mainly by its question words."""
    words = set(words_of(text))
    asking = {
        name: len(words.intersection(asked) | words.intersection(_SMALL_WORDS[name]))
        for name, asked in _INTERROGATIVES.items()
    }
    best = max(asking, key=asking.__getitem__)
    if asking[best] > sorted(asking.values())[-2]:
        return best
    return dictionary_of(text, least=1)


def _telling_words(*texts: str) -> tuple[str, ...]:
    words = dict.fromkeys(
        word
        for text in texts
        for word in words_of(_UNSPACED_SMALL_TALK.sub(" ", text))
        if word not in _SMALL_TALK_WORDS and not _LAUGHTER.fullmatch(word)
    )
    return tuple(words)[:QUESTION_WORDS]


def is_small_talk(text: str) -> bool:
    """Return whether a short text has only greetings, thanks, assent or laughter."""
    return len(text) <= SMALL_TALK_CHARS and not _telling_words(text)


def _find_subject(words: Sequence[str], dictionary: str) -> Author:
    if _has_any(_FIRST_PERSON, dictionary, words):
        return "person"
    if not _has_any(_SECOND_PERSON, dictionary, words) or _has_any(_REQUESTS, dictionary, words):
        return ""
    return "assistant"


def _asks_what_was_told(words: Sequence[str], dictionary: str) -> bool:
    """Return whether the person asks what the assistant has said, as in "you told me" or "hast du mir
    empfohlen".
    """
    told, you = _TOLD.get(dictionary), _SECOND_PERSON.get(dictionary, ())
    if told is None:
        return False
    for at, word in enumerate(words):
        if _TOLD_BY_YOU.fullmatch(word):
            return True
        if word not in you or (at and words[at - 1] in _REQUESTS[dictionary]):
            continue
        for other in words[at + 1 : at + 1 + _ABOUT]:
            if other in _SUBJECTS:
                break
            if other.startswith(told):
                return True
    return False


def _begins_to_ask(text: str, words: Sequence[str], dictionary: str) -> bool:
    """Return whether a sentence without a question mark asks something, as in "where did I put the keys"."""
    return text.rstrip()[-1:].isalnum() and _has_any(_INTERROGATIVES, dictionary, words[:1])


def _has_any(lists: Mapping[str, Sequence[str]], dictionary: str, words: Sequence[str]) -> bool:
    return any(word in words for word in lists.get(dictionary, ()))
