"""What a message asks of the past: whose words it is about, and that thanks and laughter ask for nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

import shared
from shared.core.context.question import question_dictionary, read_question
from shared.core.values.searching import dictionary_of

LOCALES = {path.parent.name for path in (Path(shared.__file__).parent / "locales").glob("*/*.json")}
ACKNOWLEDGED = {
    "ar": ("شكرا", "شكرًا!", "تمام", "ههههه"),
    "de": ("Danke!", "Ok, danke schön.", "okay", "Hahaha"),
    "en": ("Thanks!", "thank you", "ok", "haha", "Yes please."),
    "es": ("¡Gracias!", "ok", "jajaja", "Vale, gracias"),
    "fa": ("مرسی", "باشه", "ههههه", "خخخخ"),
    "fr": ("Merci !", "Ok merci", "haha", "mdr"),
    "he": ("תודה!", "אוקיי", "חחחח", "בסדר"),
    "hi": ("धन्यवाद", "ठीक है", "ओके", "haha"),
    "id": ("Terima kasih!", "oke", "wkwkwk", "makasih"),
    "it": ("Grazie!", "ok", "ahahah", "Sì, grazie"),
    "ja": ("ありがとうございます！", "はい、了解です。", "笑", "www"),
    "ko": ("감사합니다!", "네", "ㅋㅋㅋㅋ", "오케이"),
    "nl": ("Bedankt!", "dank je", "oke", "haha"),
    "pl": ("Dzięki!", "ok, dziękuję", "haha", "hehe"),
    "pt-br": ("Obrigada!", "ok", "kkkkk", "rsrsrs"),
    "ru": ("Спасибо!", "ок", "Хахаха", "ладно, спасибо"),
    "tr": ("Teşekkür ederim!", "tamam", "hahaha", "sağ ol"),
    "uk": ("Дякую!", "добре", "хаха", "ок, дякую"),
    "vi": ("Cảm ơn!", "ok", "hihihi", "vâng"),
    "zh-hans": ("谢谢！", "好的", "哈哈哈", "谢谢你"),
    "zh-hant": ("謝謝！", "好的，謝謝你。", "哈哈", "多謝"),
}


def test_thanks_and_laughter_ask_for_nothing_in_every_language() -> None:
    assert set(ACKNOWLEDGED) == LOCALES
    left = {
        (language, text): read_question(text).words
        for language, texts in ACKNOWLEDGED.items()
        for text in texts
    }
    small = {"you", "je", "schön", "vale"}
    assert {key: words for key, words in left.items() if set(words) - small} == {}


@pytest.mark.parametrize(
    ("text", "about"),
    [
        ("Where did I park the car?", "person"),
        ("What is my sister's name?", "person"),
        ("Can you remind me where the keys are?", "person"),
        ("What did you tell me about the museum?", "assistant"),
        ("Which book had you recommended to me?", "assistant"),
        ("What did I tell you about the museum?", "person"),
        ("Can you tell me where my keys are?", "person"),
        ("Who has the keys?", ""),
        ("Wo habe ich das Fahrrad gekauft?", "person"),
        ("Was hast du mir für den Urlaub empfohlen?", "assistant"),
        ("Où est-ce que j'ai mis mes clés ?", "person"),
        ("Quel livre est-ce que tu m'as conseillé ?", "assistant"),
        ("¿Dónde está mi coche?", "person"),
        ("¿Qué restaurante me recomendaste?", "assistant"),
        ("Come si chiama mia sorella?", "person"),
        ("Quale libro mi hai consigliato?", "assistant"),
        ("Onde está o meu carro?", "person"),
        ("Qual livro você me recomendou?", "assistant"),
        ("Где я оставил чемодан?", "person"),
        ("Какую книгу ты мне посоветовал?", "assistant"),
        ("Quand part le train ?", ""),
    ],
)
def test_pronouns_tell_whose_words_a_question_is_about(text: str, about: str) -> None:
    question = read_question(text)
    assert (question.about, question.asks) == (about, True)


@pytest.mark.parametrize(
    "text",
    [
        "The train was late.",
        "Really? I had no idea.",
        "How was your weekend?",
        "What do you think?",
        "And you?",
    ],
)
def test_statement_or_greeting_is_no_question(text: str) -> None:
    assert not read_question(text).asks


def test_a_question_without_its_mark_asks() -> None:
    assert read_question("where did I put the keys").asks
    assert read_question("我的钥匙在哪里？").asks
    assert not read_question("What a day.").asks


def test_an_answer_of_one_syllable_is_no_part_of_a_longer_word() -> None:
    assert read_question("いつ予約しましたか？これはいつ？").words
    assert "예약" in read_question("예약은 언제야?").words


def test_a_question_is_asked_in_its_language() -> None:
    assert question_dictionary("Wann war ich in Rom?") == "german"
    assert question_dictionary("When did I go to Rome?") == "english"
    assert question_dictionary("Где мой ключ?") == "russian"
    assert dictionary_of("Rom") == "english"


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("I was in town. Where is my umbrella?", ["where", "is", "my", "umbrella"]),
        ("So long!\nWould Dr. Seuss use 5.3.0 in the U.S. at all? I would.",
         ["would", "dr", "seuss", "use", "5", "3", "0", "in", "the", "u", "s", "at", "all"]),
        ("我在城里。我的雨伞在哪里？", ["我的", "的雨", "雨伞", "伞在", "在哪", "哪里"]),
        ("where did I put my umbrella", ["where", "did", "i", "put", "my", "umbrella"]),
        ("I lost my umbrella.", ["i", "lost", "my", "umbrella"]),
        ("Ok. I lost it. How are you?", ["are", "you", "i", "lost", "it"]),
    ],
)  # fmt: skip
def test_asked_part_is_separated_from_the_statement(text: str, asked: list[str]) -> None:
    question = read_question(text)
    assert list(question.words[: question.asked]) == asked


def test_a_greeting_asks_for_nothing_and_questions_come_first() -> None:
    assert read_question("Hello! Thanks.").words == ()
    assert read_question("I was in town. Where is my umbrella?").words[:2] == ("where", "is")
