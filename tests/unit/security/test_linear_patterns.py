"""Patterns over foreign text do work that grows with the text: every pattern of the product is hunted."""

from __future__ import annotations

import functools
import random
import re
from itertools import islice
from typing import Any

import pytest

from shared.adapters.models import offline
from shared.adapters.models.dialects import abilities, refusal_wordings
from shared.core.compaction import next_ledger, plan, summary_filters
from shared.core.context import prompts, question, untrusted_text
from shared.core.memory import knowledge
from shared.core.session import summary
from shared.core.tools import fetched_pages, reminders, repeating
from shared.core.values import identifiers, secrets_filter, speech
from shared.core.values.tagged_text import replace_tagged, tagged_passages
from tests.kit.night import at_night, by_night, rest_at_night
from tests.unit.security import pattern_hunt
from tests.unit.security.pattern_hunt import Found, hostile, hunt, overlapping_neighbours

BOUNDED = {
    r"""shared/adapters/files/papers.py::'"[^"]*"|\\\\.|\\[(?!h|m|s)[^\\]]*\\]'""": "255 characters are read",
    "shared/adapters/postgres/db/pool.py::_MARK": "reads Evertalk's own statements",
    "shared/adapters/postgres/db/readiness.py::_REVISION": "reads Evertalk's own migrations",
    "shared/core/values/identifiers.py::_SENTENCE_START": "reads four characters",
    "bot/telegram/markup/block_tree.py::_TRAILING": "reads 64 characters",
    "web/dashboard/sign_in/login.py::'<!--message-->.*?<!--end-->'": "reads Evertalk's own page",
    "web/dashboard/sign_in/login.py::'<!--provider-->.*?<!--end-->'": "reads Evertalk's own page",
    "web/dashboard/setup/settings.py::_LINK": "reads descriptions of settings",
    "web/server/words.py::_MARKED": "reads Evertalk's own pages",
}
"""Patterns whose input is short or our own, and why."""
DYNAMIC = {
    ("shared/adapters/models/dialects/abilities.py", "pattern"): "held by the module, where they are found",
    (
        "shared/adapters/models/dialects/refusal_wordings.py",
        "pattern",
    ): "held by the module, where they are found",
    ("shared/adapters/models/error_mapping.py", "pattern"): "held by the module, where they are found",
    ("shared/adapters/models/offline.py", "sign"): "held by the module as text, see below",
    ("shared/core/compaction/summary_filters.py", "f'{day_first}|{month_first}'"): "see below",
    ("shared/core/context/untrusted_text.py", "*"): "held by the module, where they are found",
    ("shared/core/identity/introductions.py", "*"): "held by the module, where they are found",
    ("shared/core/compaction/hints.py", r"f'(?<!\\w){re.escape(name)}(?!\\w)'"): "escaped text",
    ("shared/core/memory/recall.py", r"f'{re.escape(name)}\\s*[,.!?]'"): "a name, blanks, a sign",
    ("shared/core/memory/rewording.py", "pattern"): "escaped text",
    ("shared/core/memory/search.py", "words"): "escaped words",
    ("shared/core/memory/search.py", r"f'(?<![^\\W_])(?:{words}){end}'"): "escaped words",
    ("shared/core/session/artifacts.py", "re.escape(find)"): "escaped text",
    ("bot/telegram/markup/block_tree.py", "f'(?<!`){run}(?!`)'"): "backticks of one length",
    ("web/dashboard/sign_in/login.py", "f'<!--{other}-->.*?<!--end-->'"): "reads Evertalk's own page",
}
"""Calls that make their pattern when they run, and why they are harmless."""
ADVICE = (
    "Make the repeat possessive (`\\s*+`), bound it (`{0,200}`), let a lookbehind forbid a start in the "
    "middle of a run (`(?<!\\s)\\s*+x`), or scan by code as `tagged_text` does."
)
LISTED = pattern_hunt.read_hunted()
DAILY_INPUTS = 12
"""Inputs for a pattern that passed a hunt with all of its 500 inputs and has not changed since."""


ROOMS = ("bot", "shared/adapters", "shared/core", "shared/", "web", "worker")
"""Beginnings of places; a pattern belongs to the first that fits."""


@functools.cache
def product() -> tuple[list[Found], list[pattern_hunt.Dynamic]]:
    """Return all patterns and calls with unknown patterns; finding them imports the whole product."""
    return pattern_hunt.patterns()


def _is_bounded(found: Found) -> bool:
    return any(found.place.startswith(place) for place in BOUNDED)


def _of_room(room: str) -> list[Found]:
    return [
        found
        for found in product()[0]
        if next(one for one in ROOMS if found.place.startswith(one)) == room and not _is_bounded(found)
    ]


@pytest.mark.control("S51")
@pytest.mark.parametrize("room", ROOMS)
def test_pattern_work_grows_no_faster_than_its_input(room: str) -> None:
    wrong = []
    for found in _of_room(room):
        caught = hunt(found, most=DAILY_INPUTS if found.digest in LISTED and not at_night() else None)
        if caught is not None:
            wrong.append(f"{found.place} takes {caught[1]:.0f} times as long for {caught[0]!r}")
    assert not wrong, "\n".join([*wrong, ADVICE])


@pytest.mark.control("S51")
def test_no_pattern_has_neighbours_that_share_characters() -> None:
    wrong = {
        found.place: shared
        for found in product()[0]
        if not _is_bounded(found) and (shared := overlapping_neighbours(found.pattern))
    }
    assert not wrong, f"{wrong}. {ADVICE}"


def test_every_pattern_of_the_product_is_found() -> None:
    assert len(product()[0]) > 300
    places = {found.place for found in product()[0]}
    assert {one for one in BOUNDED if not any(place.startswith(one) for place in places)} == set()
    known = {(call.place, call.source) for call in product()[1]}
    strange = {call for call in known if call not in DYNAMIC and (call[0], "*") not in DYNAMIC}
    assert not strange, f"{strange} is only known when it runs: name it in DYNAMIC and say why it is harmless"


@pytest.mark.parametrize("sign", [*offline._ABOUT_SOMETHING, *offline._KINDS.values()])
def test_offline_sign_work_grows_no_faster_than_its_input(sign: str) -> None:
    found = Found("offline", re.compile(sign, re.IGNORECASE), "search")
    assert hunt(found, most=150) is None


WORDINGS = [
    *(row.pattern for row in (*refusal_wordings.FULL_WINDOWS, *refusal_wordings.OUTPUT_LIMITS)),
    *(one.pattern for one in vars(refusal_wordings).values() if isinstance(one, refusal_wordings.Wording)),
    *(row.pattern for row in abilities._ROWS),
]


@pytest.mark.control("S51")
def test_refusal_wordings_are_among_the_hunted_patterns() -> None:
    assert {(one.pattern, one.flags) for one in WORDINGS} <= {
        (found.pattern.pattern, found.pattern.flags) for found in product()[0]
    }


@pytest.mark.control("S51")
def test_changed_pattern_is_hunted_with_all_inputs() -> None:
    assert len(LISTED & {found.digest for found in product()[0]}) > 300
    former, _, method = FORMER["email"]
    changed = Found("email", former, method)
    assert changed.digest not in LISTED
    assert Found("email", former, "fullmatch").digest != changed.digest
    assert Found("email", re.compile(former.pattern, re.IGNORECASE), method).digest != changed.digest


# The former patterns, which were quadratic: each is caught by the hunt, and its successor finds the same.

_TAGS = "|".join(prompts.OUR_TAGS)
FORMER: dict[str, tuple[re.Pattern[str], re.Pattern[str], str]] = {
    "cited": (
        re.compile(r"\s*[\[(]((?:[\s,;]*#\d{1,15})+)\s*[\])]"), next_ledger._CITED, "search",
    ),
    "opened": (re.compile(rf"<(?=\s*/?\s*(?:{_TAGS})\b)", re.IGNORECASE), plan._OPENED, "search"),
    "handed": (re.compile(r"<(?=\s*/?\s*handed_over\b)", re.IGNORECASE), prompts._HANDED_MARK, "search"),
    "page": (re.compile(r"<(?=\s*/?\s*fetched_page)", re.IGNORECASE), fetched_pages._MARK, "search"),
    "control": (
        re.compile(r"<(?=\|[\w-]{1,40}\|>|<\s*/?\s*SYS\s*>>)", re.IGNORECASE),
        untrusted_text._CONTROL,
        "search",
    ),
    "email": (
        re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b"), identifiers.EMAIL, "search",
    ),
    "path": (
        re.compile(
            r"(?<![\w/])(?:~|\.{1,2})?(?:/[\w.-]*[\w-]){2,}/?"
            r"|\b[\w-]+\.(?:py|js|ts|md|txt|json|csv|pdf|toml|ya?ml)\b"
        ),
        identifiers.PATH,
        "search",
    ),
    "ahead": (
        re.compile(rf"in\s+{reminders._STEP}(?:\s*(?:,|and|,\s*and)?\s+{reminders._STEP})?", re.IGNORECASE),
        reminders._AHEAD,
        "fullmatch",
    ),
    "time": (
        re.compile(
            r"\s*\bat\s+(\d{1,2})(?:[:.h](\d\d))?\s*(am|pm|a\.m\.|p\.m\.|o'clock|h|uhr)?\s*$"
        ),
        repeating._TIME,
        "search",
    ),
    "month day": (
        re.compile(r"\b(?:on |the |day )+(?:(\d{1,2})(?:st|nd|rd|th)?|(last)(?: day)?)\b"),
        repeating._MONTH_DAY,
        "search",
    ),
    "laughter": (
        re.compile(r"a?(?:h[aeiou]|j[aei]|х[аеи]|rs|wk|k|w|ה|ח|ه|خ|ハ|は|哈|呵|笑|하|호|히|ᄏ|ᄒ){2,}\w?|笑"),
        question._LAUGHTER,
        "fullmatch",
    ),
    "url secret": (
        re.compile(
            r"(?P<keep>\b[a-z][a-z0-9+.-]*://[^\s:/@]*:)(?P<secret>[^\s/@]+)(?=@)", re.IGNORECASE
        ),
        secrets_filter._IN_URL,
        "search",
    ),
    "link": (re.compile(r"\[([^\]]+)\]\([^)\s]*\)"), speech._MARKS[1][0], "search"),
    "quoted": (re.compile(r"\s*</details>\s*\Z"), re.compile(r"(?<!\s)\s*+</details>\s*+\Z"), "search"),
}  # fmt: skip
"""By name: the former pattern, the one in its place, and how both are applied."""


@pytest.mark.control("S51")
@pytest.mark.parametrize(
    "name", rest_at_night(FORMER, by_day=("cited", "opened", "email", "path", "time", "link"))
)
def test_hunt_catches_the_former_pattern(name: str) -> None:
    former, _, method = FORMER[name]
    assert hunt(Found(name, former, method)) is not None


def _samples(pattern: re.Pattern[str], seed: str) -> list[str]:
    """Return random texts of pieces that the pattern asks for, and of ordinary ones."""
    chance = random.Random(seed)
    pieces = [part for parts in islice(hostile(pattern), 0, None, 7) for part in parts if part]
    pieces += [
        "a",
        " ",
        "\n",
        "on 5",
        "ann@example.org",
        "/etc/hosts",
        "read.md",
        "[#12]",
        "at 9:30 pm",
        "wkwk",
    ]
    return [
        "".join(chance.choices(pieces, k=chance.randint(1, 8))) for _ in range(by_night(20_000, else_=1_500))
    ]


def _matches(pattern: re.Pattern[str], method: str, text: str) -> list[tuple[Any, ...]]:
    if method == "search":
        return [(found.span(), *found.groups()) for found in pattern.finditer(text)]
    found = getattr(pattern, method)(text)
    return [] if found is None else [(found.span(), *found.groups())]


@pytest.mark.parametrize("name", [name for name in FORMER if name != "link"])
def test_pattern_finds_what_the_former_one_found(name: str) -> None:
    former, new, method = FORMER[name]
    for text in _samples(former, name):
        if len(max(re.split(r"[^\w.+-]", text), key=len)) > 64:
            continue  # longer rows of words and hyphens are cut on purpose
        assert _matches(new, method, text) == _matches(former, method, text), text


def _former_spans(pattern: re.Pattern[str], text: str) -> list[tuple[int, int, str]]:
    return [(found.start(), found.end(), found[2]) for found in pattern.finditer(text)]


def test_tagged_passages_are_what_the_former_pattern_found() -> None:
    former = re.compile(r"<([a-z][\w-]*)(?:\s[^<>]*)?>(.*?)</\1>", re.DOTALL)
    chance = random.Random("tags")
    pieces = ("<a>", "</a>", "<b x='1'>", "</b>", "<a-b>", "</a-b>", "words", "\n", "<", ">", "</", "<a")
    for _ in range(by_night(50_000, else_=4_000)):
        text = "".join(chance.choices(pieces, k=chance.randint(1, 14)))
        found = [(one.start, one.end, one.text) for one in tagged_passages(text)]
        assert found == _former_spans(former, text), text
        assert replace_tagged(text, by=" ") == former.sub(" ", text)


@pytest.mark.control("S51")
def test_tagged_passages_read_many_open_tags_once() -> None:
    def work(chars: int) -> Any:
        text = "".join(f"<a{number}>" for number in range(chars // 6)) + "</z>"
        return lambda: list(tagged_passages(text))

    assert pattern_hunt.grows_too_fast(work) == 0


@pytest.mark.parametrize(
    ("line", "title"),
    [
        ("# Title", "Title"), ("## Title ##", "Title"), ("# A # B", "A # B"), ("# ####", "####"[:1]),
        ("#  Title  ##  ", "Title"), ("# C#", "C"), ("# ##  ##", "##"),
    ],
)  # fmt: skip
def test_heading_loses_the_signs_that_close_it(line: str, title: str) -> None:
    former = re.compile(r" {0,3}(#{1,6})[ \t]+(.+?)[ \t]*#*[ \t]*$")
    found, before = knowledge._HEADING.match(line), former.match(line)
    assert found is not None
    assert before is not None
    assert knowledge._title(found[2]) == before[2] == title
    assert summary._title(line) == title.strip(" *:")


@pytest.mark.control("S51")
def test_marks_inside_marks_are_defused_however_deep() -> None:
    deep = "<" * 5_000 + "</outside_text>" + "/outside_text>" * 5_000
    cleaned = plan._without_injections(deep)
    assert "<outside_text" not in cleaned
    assert "</outside_text" not in cleaned


def test_summary_filters_read_many_lines_in_one_pass() -> None:
    def work(chars: int) -> Any:
        return lambda: summary_filters._INJECTION.search("\n" * chars)

    assert pattern_hunt.grows_too_fast(work) == 0
