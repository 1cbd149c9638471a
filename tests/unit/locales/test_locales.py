"""The catalogues: whole in every language that has a folder, and said in the language that fits a person."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import get_args

import pytest
from babel import Locale
from hypothesis import given
from hypothesis import strategies as st

from shared import locales
from shared.locales import Catalogue, Part, catalogue, list_languages, match_language, name_language
from tests.kit.plain_words import find_stumbles

ROOT = Path(__file__).parents[3]
PARTS = get_args(Part)
LANGUAGES = list_languages()
TRANSLATED = tuple(language for language in LANGUAGES if language != "en")
CATEGORIES = ("zero", "one", "two", "few", "many", "other")
PLURAL = re.compile(rf"(.+)_({'|'.join(CATEGORIES)})")


@cache
def read(language: str, part: str) -> Mapping[str, str]:
    texts: Mapping[str, str] = json.loads((locales.FOLDER / language / f"{part}.json").read_text("utf-8"))
    return texts


def placeholders(text: str) -> set[str]:
    return set(re.findall(r"\{(\w+)\}", text))


def subject(key: str) -> str:
    """A key without its plural category."""
    found = PLURAL.fullmatch(key)
    return found[1] if found else key


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_language_has_every_sentence_with_its_placeholders(language: str, part: str) -> None:
    english, own = read("en", part), read(language, part)
    wanted = {subject(key) for key in english}
    assert {subject(key) for key in own} == wanted
    kept = {subject(key): placeholders(text) for key, text in english.items() if not key.endswith("_one")}
    for key, text in own.items():
        assert text.strip() == text != "", key
        # A form for one number alone may spell it out: one message, two messages.
        missing = kept[subject(key)] - placeholders(text)
        assert missing <= ({"count"} if PLURAL.fullmatch(key) else set()), key
        assert placeholders(text) <= kept[subject(key)] | {"count"}, key


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("language", LANGUAGES)
def test_what_is_counted_has_a_form_for_each_plural_of_the_language(language: str, part: str) -> None:
    wanted = {*Locale.parse(language, sep="-").plural_form.tags, "other"}
    counted = {found[1] for key in read("en", part) if (found := PLURAL.fullmatch(key))}
    assert counted
    for key in counted:
        assert {form for form in CATEGORIES if f"{key}_{form}" in read(language, part)} == wanted, key


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("language", LANGUAGES)
def test_commands_and_code_are_the_same_in_every_language(language: str, part: str) -> None:
    """Of the first form of each sentence, what somebody may copy and send; an example's words may differ."""
    for key, english in read("en", part).items():
        own = read(language, part).get(key, english)
        found, wanted = (set(re.findall(r"(?<![\w.])/[a-z]+\b", text)) for text in (own, english))
        assert found == wanted, key
        assert own.count("`") == english.count("`"), key
        assert own.count("**") == english.count("**"), key


def labels(language: str, *parts: str) -> dict[str, str]:
    """What is shown by itself, such as a button's words, by its place; rooms of the chat are opened."""
    found: dict[str, str] = {}
    for part in parts:
        for key, value in json.loads((locales.FOLDER / language / f"{part}.json").read_text("utf-8")).items():
            inner = value if isinstance(value, dict) else {"": value}
            found |= {f"{part} {key} {name}".strip(): text for name, text in inner.items()}
    return {place: text.strip("*") for place, text in found.items() if not PLURAL.fullmatch(place)}


@pytest.mark.parametrize("parts", [("commands", "telegram"), ("chat", "chat_parts")])
@pytest.mark.parametrize("language", TRANSLATED)
def test_what_has_one_name_in_english_has_one_name(language: str, parts: tuple[str, ...]) -> None:
    """A name that was changed in one place is changed in all; inner words follow the grammar around them."""
    own, places = labels(language, *parts), dict[str, list[str]]()
    for place, text in labels("en", *parts).items():
        places.setdefault(text, []).append(place)
    names = {text: found for text, found in places.items() if len(found) > 1 and text[0].isupper()}
    assert names
    for text, found in names.items():
        assert len({own[place] for place in found}) == 1, (text, found)


NAMED = re.compile(r"(?:[Pp]age|under|pressed) ([A-Z][a-z]+(?: a test| problems| access)?)")


@pytest.mark.parametrize("language", TRANSLATED)
def test_text_naming_a_page_or_button_uses_its_label(language: str) -> None:
    words = {
        key: " ".join(value.values()) if isinstance(value, dict) else value
        for key, value in json.loads(
            (locales.FOLDER / language / "dashboard.json").read_text("utf-8")
        ).items()
    }
    named = [(key, label) for key in words for label in NAMED.findall(key)]
    assert len(named) >= 10
    assert [key for key, label in named if label not in words] == []
    wrong = [key for key, label in named if words[label].casefold() not in words[key].casefold()]
    assert wrong == []
    chat = labels(language, "chat", "chat_parts")
    assert chat["chat pin"].casefold() in chat["chat_parts sheet pins_none"].casefold()


def texts_of(source: Path) -> Iterator[str]:
    """Its constants, without docstrings."""
    tree = ast.parse(source.read_text("utf-8"))
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


def test_no_english_text_has_words_that_readers_stumble_over() -> None:
    """The catalogues, and what the bot, the pages, the command line and the doctor say by themselves."""
    dashboard = json.loads((locales.FOLDER / "de" / "dashboard.json").read_text("utf-8"))
    found = {f"dashboard {text}": text for text in dashboard}
    for part in (locales.FOLDER / "en").glob("*.json"):
        for key, value in json.loads(part.read_text("utf-8")).items():
            inner = value if isinstance(value, dict) else {"": value}
            found |= {f"{part.stem} {key} {name}": text for name, text in inner.items()}
    for top in ("bot", "web", "shared/cli", "shared/core/values", "shared/core/ops", "shared/diagnostics"):
        for path in (ROOT / top).rglob("*.py"):
            found |= {f"{path}: {text}": text for text in texts_of(path)}
    assert len(found) > 5_000
    assert [where for where, text in found.items() if find_stumbles(text)] == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_language_says_its_name_its_direction_and_who_wrote_it(language: str) -> None:
    about = json.loads((locales.FOLDER / language / "about.json").read_text("utf-8"))
    assert set(about) == {"name", "translated", "direction"}
    assert about["translated"] in ("by people", "by machine")
    direction = "rtl" if language.split("-")[0] in ("ar", "fa", "he", "ur") else "ltr"
    assert about["direction"] == direction == catalogue("commands", language).direction
    assert name_language(language).strip()
    assert match_language(language) == language


@pytest.mark.parametrize(
    ("tag", "language"),
    [
        ("de", "de"), ("DE", "de"), ("de-AT", "de"), ("de_CH", "de"), ("de-Latn-CH-1996", "de"),
        ("", "en"), ("en-GB", "en"), ("tlh", "en"), ("den", "en"), ("xx-de", "en"), ("💬", "en"),
        ("x" * 500, "en"), ("../en", "en"), (".", "en"),
    ],
)  # fmt: skip
def test_a_tag_finds_the_language_of_its_longest_beginning(tag: str, language: str) -> None:
    assert match_language(tag) == language
    assert catalogue("telegram", tag).language == language


@pytest.mark.parametrize(
    ("tag", "language"),
    [
        ("zh", "zh-hans"), ("zh-CN", "zh-hans"), ("zh-SG", "zh-hans"), ("zh-Hans-HK", "zh-hans"),
        ("zh-TW", "zh-hant"), ("zh_HK", "zh-hant"), ("zh-Hant-TW", "zh-hant"), ("pt", "pt-br"),
        ("pt-PT", "pt-br"), ("pt-BR", "pt-br"), ("iw", "he"), ("iw-IL", "he"), ("in", "id"), ("nb", "en"),
    ],
)  # fmt: skip
def test_a_tag_finds_the_folder_of_another_name(
    tag: str, language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = ("en", "he", "id", "pt-br", "zh-hans", "zh-hant")
    monkeypatch.setattr(locales, "list_languages", lambda: there)
    assert match_language(tag) == language


@given(st.text(max_size=60))
def test_any_tag_finds_a_language(tag: str) -> None:
    assert match_language(tag) in LANGUAGES


ENGLISH = Catalogue(
    language="en",
    direction="ltr",
    texts={"hello": "Hello {name}!", "notes_one": "{count} note", "notes_other": "{count} notes"},
)


def make(language: str, **texts: str) -> Catalogue:
    return Catalogue(language=language, direction="ltr", texts=texts, english=ENGLISH)


def test_what_a_language_lacks_is_said_in_english() -> None:
    polish = make("pl")
    assert polish.say("hello", name="Ada") == "Hello Ada!"
    assert [polish.say("notes", count=count) for count in (1, 2)] == ["1 note", "2 notes"]
    assert "hello" in polish
    assert "bye" not in polish
    with pytest.raises(KeyError):
        polish.say("bye")


def test_a_number_decides_the_plural_by_the_rules_of_the_language() -> None:
    polish = make(
        "pl", notes_one="{count} notatka", notes_few="{count} notatki", notes_many="{count} notatek"
    )
    told = [polish.say("notes", count=count) for count in (1, 3, 5, 22, 12)]
    assert told == ["1 notatka", "3 notatki", "5 notatek", "22 notatki", "12 notatek"]
    arabic = make("ar", notes_zero="0", notes_two="2", notes_few="few {count}", notes_other="x")
    assert [arabic.say("notes", count=count) for count in (0, 2, 7)] == ["0", "2", "few 7"]


def test_words_that_are_put_in_are_not_read_again() -> None:
    assert ENGLISH.say("hello", name="{name} {count}") == "Hello {name} {count}!"
    with pytest.raises(KeyError):
        ENGLISH.say("hello")


@pytest.mark.parametrize(
    ("language", "number", "tokens", "money", "least"),
    [
        ("en", "1,234,567", "1.2k", "$1.50", "< $0.01"),
        ("de", "1.234.567", "1,2k", "1,50 $", "< 0,01 $"),
        ("fr", "1\u202f234\u202f567", "1,2k", "1,50 $US", "< 0,01 $US"),
        ("hi", "12,34,567", "1.2k", "$1.50", "< $0.01"),
    ],
)
def test_numbers_stand_as_the_language_writes_them(
    language: str, number: str, tokens: str, money: str, least: str
) -> None:
    texts = ENGLISH if language == "en" else make(language)
    assert texts.number(1_234_567) == number
    assert (texts.thousands(1234), texts.thousands(999)) == (tokens, "999")
    assert (texts.dollars(1_500_000), texts.dollars(1_000), texts.dollars(None)) == (money, least, "–")
    assert texts.dollars(0) == money.replace("1", "0").replace("5", "0")


# -- what the code says -------------------------------------------------------------------------------


@cache
def sources() -> tuple[ast.AST, ...]:
    """Calls and texts of all modules that say something."""
    paths = [
        path
        for top in ("bot", "shared/core", "shared/services", "web")
        for path in (ROOT / top).rglob("*.py")
    ]
    told = [text for path in paths if re.search(r"\b(?:say|from_key)\b", text := path.read_text("utf-8"))]
    kept = (ast.Call, ast.Constant, ast.JoinedStr)
    return tuple(node for text in told for node in ast.walk(ast.parse(text)) if isinstance(node, kept))


def words_in(nodes: Iterable[ast.AST]) -> set[str]:
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def beginnings() -> tuple[str, ...]:
    """Of keys that the code puts together."""
    found = [node.values[0] for node in sources() if isinstance(node, ast.JoinedStr) and node.values]
    return tuple(word for word in words_in(found) if re.fullmatch(r"[a-z]+(_[a-z]+)*_", word))


def branches(node: ast.AST) -> Iterator[ast.AST]:
    """What an expression may come to."""
    if isinstance(node, ast.IfExp):
        yield from (*branches(node.body), *branches(node.orelse))
    else:
        yield node


def said() -> set[str]:
    """Keys that stand as text in the first argument of `say` or `from_key`."""
    calls = [node for node in sources() if isinstance(node, ast.Call) and node.args]
    names = [getattr(call.func, "attr", "") or getattr(call.func, "id", "") for call in calls]
    told = [call.args[0] for call, name in zip(calls, names, strict=True) if name in ("say", "from_key")]
    return words_in(branch for first in told for branch in branches(first))


def test_every_sentence_that_the_code_says_is_there() -> None:
    known = {name for part in PARTS for key in read("en", part) for name in (key, subject(key))}
    assert len(said()) > 150
    assert said() - known == set()


def test_no_sentence_is_without_use() -> None:
    words, begun = words_in(sources()), beginnings()
    assert {
        key
        for part in PARTS
        for key in read("en", part)
        if not {key, subject(key)} & words and not key.startswith(begun)
    } == set()


@pytest.mark.parametrize("language", LANGUAGES)
def test_headings_of_summaries_are_the_same_on_cards_as_in_chats(language: str) -> None:
    parts: Mapping[str, Mapping[str, str]] = json.loads(
        (locales.FOLDER / language / "chat_parts.json").read_text("utf-8")
    )
    on_cards, in_chats = (
        {key: text for key, text in words.items() if key.startswith("summary_")}
        for words in (parts["card"], read(language, "commands"))
    )
    assert on_cards == in_chats != {}
