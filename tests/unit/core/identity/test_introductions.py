"""A name is taken only from a message that gives it as the writer's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shared.core.identity.introductions import CHARS_READ, find_introduced_name
from tests.kit.growth import grows_linearly

LOCALES = Path(__file__).resolve().parents[4] / "shared" / "locales"
INTRODUCED = {
    "en": {
        "I'm Ada.": "Ada", "Hi, I’m Ada!": "Ada", "Hello there! I am Ada and I sell boats.": "Ada",
        "My name is Ada Lovelace, I need help": "Ada Lovelace", "my name's Bob": "Bob",
        "Good question, but please call me Ada.": "", "You can call me Zoë.": "Zoë",
        "I'm Ada from Oslo": "Ada",
    },
    "de": {"Hallo, ich heiße Jürgen und suche ein Rad.": "Jürgen", "Mein Name ist Ada König.": "Ada König"},
    "es": {"Hola, me llamo Íñigo.": "Íñigo", "Mi nombre es José Luis": "José Luis"},
    "fr": {"Bonjour, je m'appelle Hélène.": "Hélène", "Mon prénom est Zoé": "Zoé"},
    "it": {"Ciao, mi chiamo Chiara!": "Chiara"},
    "nl": {"Hoi, ik heet Sjoerd.": "Sjoerd", "Mijn naam is Fleur": "Fleur"},
    "pl": {"Cześć, mam na imię Łukasz.": "Łukasz", "Nazywam się Anna Nowak": "Anna Nowak"},
    "pt-br": {"Oi, meu nome é João.": "João", "Me chamo Ana": "Ana"},
    "ru": {"Привет, меня зовут Аня.": "Аня", "Моё имя Олег": "Олег"},
    "uk": {"Привіт, мене звати Оксана!": "Оксана", "Моє ім'я Тарас": "Тарас"},
    "tr": {"Merhaba, benim adım Çağla.": "Çağla", "İsmim yok. Adım Deniz": "Deniz"},
    "id": {"Halo, nama saya Budi.": "Budi", "Namaku Siti": "Siti"},
    "vi": {"Xin chào, tôi tên là Nguyễn Văn An.": "Nguyễn Văn An", "Tên mình là Hoa": "Hoa"},
    "ar": {"مرحبا، اسمي ليلى.": "ليلى"},
    "fa": {"سلام، اسم من آرش است": "آرش"},
    "he": {"היי, קוראים לי נועה.": "נועה", "שמי דוד": "דוד"},
    "hi": {"नमस्ते, मेरा नाम प्रिया है।": "प्रिया"},
    "ja": {"こんにちは。私の名前は田中です。": "田中", "佐藤と申します。": "佐藤"},
    "ko": {"안녕하세요, 제 이름은 민수입니다.": "민수", "저는 지현이라고 합니다.": "지현"},
    "zh-hans": {"你好，我叫王小明。": "王小明", "我的名字是Ada": "Ada"},
    "zh-hant": {"我叫陳美玲，請多指教": "陳美玲"},
}  # fmt: skip
SILENT = (
    "I'm German.", "I'm sorry.", "I'm Sorry.", "I am busy", "I'm Vegan, by the way",
    "My name is on the list.",
    'She said: "My name is Eve."', "Her name is Ada.",
    "She said I'm Ada", "> my name is Mallory", "call me later",
    "Please call me Monday.", "Ich bin Lehrer.", "Ich heiße nicht so.", "我叫了外卖。",
    "我叫他回家。", "اسمي ليس هنا",
    "Her friend, I'm told, is Ada", "adım adım", "меня зовут на работу", "", "my name is", "Is my name Ada?",
    "Mi chiamo domani", "My name is " + "A" * 90,
)  # fmt: skip


@pytest.mark.parametrize("language", INTRODUCED)
def test_introduction_gives_the_writers_name(language: str) -> None:
    assert {text: find_introduced_name(text) for text in INTRODUCED[language]} == INTRODUCED[language]


@pytest.mark.parametrize("language", INTRODUCED)
def test_answer_to_the_widgets_question_gives_the_name(language: str) -> None:
    parts = json.loads((LOCALES / language / "chat_parts.json").read_text(encoding="utf-8"))
    assert find_introduced_name(parts["name"]["answer"].replace("{name}", "Ada")) == "Ada"


@pytest.mark.parametrize("text", SILENT)
def test_other_sentence_gives_no_name(text: str) -> None:
    assert find_introduced_name(text) == ""


def test_long_message_gives_no_name() -> None:
    assert find_introduced_name("My name is Ada. " + "x" * CHARS_READ) == ""


@pytest.mark.parametrize(
    "piece", ["my name is ", "Hi, I'm ", "A a ", "的", "اسمي ", "\n> ", "私の名前は", "'’-"]
)
async def test_time_grows_with_the_length_of_a_hostile_text(piece: str) -> None:
    async def work(chars: int) -> None:
        for _ in range(20):
            find_introduced_name((piece * chars)[:chars])

    assert await grows_linearly(work, CHARS_READ // 4)


def test_name_holds_no_marks_of_the_program() -> None:
    assert find_introduced_name("My name is Ada\u202e<system>") == "Ada"
