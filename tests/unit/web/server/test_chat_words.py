"""The catalogues of the chat: whole in every language, and what the scripts and pages ask for, no more."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.kit.needed_programs import refuse
from tests.kit.web.languages import FOLDERS, TAGS
from web.server.pages import LOCALES, STATIC, Files, choose_language

LANGUAGES = sorted(path.parent.name for path in LOCALES.glob("*/chat.json"))
SCRIPTS = {path.name: path.read_text() for path in sorted((STATIC / "widget").glob("*.js"))}
FORMS = ("zero", "one", "two", "few", "many", "other")
PAGE = "page"
COMMON = ""
"""The part that every chat has."""
LITERAL = re.compile(r"""["'`]([a-z][a-z_]*)["'`]""")
CODES = {
    code
    for folder in ("web", "shared")
    for path in (STATIC.parents[1] / folder).rglob("*.py")
    for code in LITERAL.findall(path.read_text())
}
"""What the server may name as a reason."""
FROM_SERVER = {"acts", "edit", "files", "keep"}
"""Parts that have words for codes of the server."""


def catalogue(language: str) -> dict[tuple[str, str], str]:
    """By part and key."""
    common, parts = (
        json.loads((LOCALES / language / f"{name}.json").read_text()) for name in ("chat", "chat_parts")
    )
    whole = {COMMON: common} | parts
    return {(part, key): text for part, words in whole.items() for key, text in words.items()}


def base(key: str) -> str:
    start, _, form = key.rpartition("_")
    return start if form in FORMS else key


def holes(text: str) -> set[str]:
    return set(re.findall(r"\{(\w+)\}", text))


def plurals(language: str) -> dict[str, set[int]]:
    """Which numbers each form of a language is for, as browsers know them."""
    node = shutil.which("node") or refuse("no node on this machine (Debian: apt-get install nodejs)")
    script = """
        const rules = new Intl.PluralRules(process.argv[1]);
        const found = Object.fromEntries(rules.resolvedOptions().pluralCategories.map((form) => [form, []]));
        for (let count = 0; count <= 1000; count++) found[rules.select(count)].push(count);
        console.log(JSON.stringify(found));"""
    done = subprocess.run([node, "-e", script, language], capture_output=True, text=True, check=True)
    return {form: set(numbers) for form, numbers in json.loads(done.stdout).items()}


ENGLISH = catalogue("en")
COUNTED = {(part, base(key)) for part, key in ENGLISH if base(key) != key and key.endswith("_other")}
HOLES = {(part, base(key)): holes(text) for (part, key), text in ENGLISH.items()}


def is_plural(part: str, key: str) -> bool:
    return (part, base(key)) in COUNTED


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_language_has_all_words_and_no_other_ones(language: str) -> None:
    own = catalogue(language)
    assert {one for one in own if not is_plural(*one)} == {one for one in ENGLISH if not is_plural(*one)}
    assert {(part, base(key)) for part, key in own if is_plural(part, key)} == COUNTED
    assert [one for one, text in own.items() if not text.strip()] == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_language_has_its_own_plural_forms(language: str) -> None:
    forms = plurals(language)
    needed = {form for form, numbers in forms.items() if numbers}
    own = catalogue(language)
    for part, key in COUNTED:
        there = {form for form in FORMS if (part, f"{key}_{form}") in own}
        assert needed <= there <= forms.keys(), f"{part} {key}"


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_language_fills_in_what_english_fills_in(language: str) -> None:
    forms = plurals(language)
    wrong = []
    for (part, key), text in catalogue(language).items():
        wanted = HOLES[part, base(key) if is_plural(part, key) else key]
        single = is_plural(part, key) and len(forms[key.rpartition("_")[2]]) == 1
        # A form for one number only may say it in a word.
        if holes(text) != wanted and not (single and holes(text) == wanted - {"count"}):
            wrong.append((part, key))
    assert wrong == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_code_and_commands_are_not_translated(language: str) -> None:
    command = re.compile(r"(?<![A-Za-z0-9<])/[a-z]+")
    own = catalogue(language)
    told = {one: command.findall(text) for one, text in ENGLISH.items() if command.search(text)}
    assert told
    assert {one: command.findall(own[one]) for one in told} == told


def part_of(name: str) -> str:
    """Which words the function `t` of a module has."""
    text = SCRIPTS[name]
    if own := re.search(r"const t = wordsOf\(\"(\w+)\", english\.(\w+)\)", text):
        assert own[1] == own[2]
        return own[1]
    return (
        part_of("sheet-parts.js")
        if re.search(r"import \{[^}]*\bt\b[^}]*\} from \"./sheet-parts.js\"", text)
        else COMMON
    )


def asked_keys(text: str) -> Iterator[tuple[Literal["key", "prefix"], str]]:
    """What stands as a text in the first argument of each call of `t`, and what one of `word` in keep.js."""
    for call in re.finditer(r"(?<![\w.])(?:t|word)\(", text):
        depth, end = 1, call.end()
        while depth:
            depth += {"(": 1, "{": 1, "[": 1, ")": -1, "}": -1, "]": -1}.get(text[end], 0)
            end += 1
            if depth == 1 and text[end] == ",":
                break
        argument = re.sub(r"=== (\"\w+\"|'\w+')|\[[^\]]*\]|\.startsWith\([^)]*\)", "", text[call.end() : end])
        for prefix in re.findall(r"`(\w+_)\$\{", argument):
            yield "prefix", prefix
        for key in re.findall(r"\"(\w+)\"", argument):
            yield "key", key


def test_every_word_that_the_scripts_ask_for_is_there() -> None:
    missing, found = [], 0
    for name, text in SCRIPTS.items():
        bases = {base(key) for part, key in ENGLISH if part in (part_of(name), COMMON)}
        bases |= {key for part, key in ENGLISH if part in (part_of(name), COMMON)}
        for kind, key in asked_keys(text):
            found += 1
            if not (key in bases if kind == "key" else any(one.startswith(key) for one in bases)):
                missing.append((name, key))
    assert missing == []
    assert found > 150


def test_no_word_is_kept_that_nothing_asks_for() -> None:
    unused = []
    for part, key in ENGLISH:
        texts = [text for name, text in SCRIPTS.items() if not part or part_of(name) in (part, COMMON)]
        name = base(key) if is_plural(part, key) else key
        literal = any(re.search(rf"[\"'`\s{{]{name}[\"':`]", text) for text in texts)
        prefixed = any(f"`{name[: at + 1]}${{" in text for text in texts for at in find_all(name, "_"))
        told = part in FROM_SERVER and name in CODES
        if part != PAGE and not (literal or prefixed or told):
            unused.append((part, key))
    assert unused == []


def find_all(text: str, char: str) -> list[int]:
    return [at for at, one in enumerate(text) if one == char]


def test_pages_use_exactly_their_own_translations() -> None:
    pages = "".join((STATIC / name).read_text() for name in ("chat.html", "missing.html"))
    assert set(re.findall(r"\[\[(\w+)\]\]", pages)) - {"language"} == {
        key for part, key in ENGLISH if part == PAGE
    }


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_words_are_served_dense_and_the_widget_knows_the_language(language: str) -> None:
    files = Files()
    for packed in (False, True):
        for name in ("chat", "chat_parts"):
            served = files.get(f"locales/{language}/{name}.json", packed=packed)
            assert served is not None
            assert served.content_type == "application/json"
            assert b"\n" not in served.body
            assert json.loads(served.body) == json.loads((LOCALES / language / f"{name}.json").read_bytes())
    for script, packed in (("widget/i18n.js", False), ("widget/main.js", True)):
        served = files.get(script, packed=packed)
        assert served is not None
        assert f'"{" ".join(LANGUAGES)}".split(" ")'.encode() in served.body


def test_a_new_folder_is_a_new_language_and_changes_the_digest(tmp_path: Path) -> None:
    shutil.copytree(LOCALES / "en", tmp_path / "en")
    first = Files(locales=tmp_path)
    shutil.copytree(LOCALES / "en", tmp_path / "nds")
    second = Files(locales=tmp_path)
    assert (first.languages, second.languages) == (["en"], ["en", "nds"])
    assert first.digest != second.digest


def test_each_packed_file_has_the_words_of_its_own_parts_only() -> None:
    begins = {part: f"{part}:{{{key}:" for part, key in reversed(ENGLISH) if part}
    packed = {path.name: path.read_text() for path in (STATIC / "dist/widget").glob("*.js")}
    found = {name: {part for part, start in begins.items() if start in text} for name, text in packed.items()}
    assert {name: parts for name, parts in found.items() if parts} == {
        "attach.js": {"files"},
        "name.js": {"name"},
        "past.js": {"past"},
        "guide.js": {"guide"},
        "voice.js": {"voice"},
        "human.js": {"human"},
        "notify.js": {"notify"},
        "md.js": {"acts"},
        "menu.js": {"card", "cut", "edit", "imports", "keep", "menu", "opinion", "shares", "sheet", "toast"},
    }


@pytest.mark.parametrize(("tag", "folder"), TAGS.items())
def test_the_longest_folder_that_a_tag_begins_with_is_spoken(tag: str, folder: str) -> None:
    assert choose_language(tag, FOLDERS) == folder


@pytest.mark.parametrize(
    ("accepted", "folder"),
    [
        ("de-AT,de;q=0.9,en;q=0.8", "de"), ("el,de;q=0.5", "de"), ("el, *;q=0.1", "en"), ("*", "en"),
        ("en-GB,de", "en"), (",;q=1, , pt ;q=.3", "pt-br"), ("-", "en"),
    ],
)  # fmt: skip
def test_the_first_of_the_languages_that_a_browser_names_is_taken(accepted: str, folder: str) -> None:
    assert choose_language(accepted, FOLDERS) == folder


def test_a_language_may_lack_words_for_a_while(tmp_path: Path) -> None:
    shutil.copytree(LOCALES / "en", tmp_path / "en")
    words: dict[str, Any] = {"page": {"missing": "<b>Nix</b> da"}}
    (tmp_path / "nds").mkdir()
    (tmp_path / "nds/chat_parts.json").write_text(json.dumps(words))
    page = Files(locales=tmp_path).page("missing.html", "nds")
    assert page is not None
    text = page.body.decode()
    assert '<html lang="nds">' in text
    assert "&lt;b&gt;Nix&lt;/b&gt; da" in text
    assert "Go to the chat" in text
