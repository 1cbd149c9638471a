"""Links in documents lead somewhere, every page can be reached, and says first what it answers."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.kit.plain_words import find_stumbles

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
NAMES = [path.relative_to(ROOT).as_posix() for path in DOCUMENTS]
PAGES = [name for name in NAMES if name.startswith("docs/")]
MOST_README_LINES = 150
MOST_PICTURE_BYTES = 150_000
_LINK = re.compile(r"\]\(([^()\s]+)\)")
_PATH = re.compile(r"`((?:bot|core|services|adapters|shared|web|worker|tests|migrations|docs)/[\w./-]*)`")
_POINTER = re.compile(r"(docs/\w+\.md)(?:, ([A-Z][\w ]+))?")
_FENCE = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)


def read_prose(path: Path) -> str:
    """Without blocks of code: nothing in them is a heading or a link."""
    return _FENCE.sub("", path.read_text(encoding="utf-8"))


def anchors_of(path: Path) -> set[str]:
    """As GitHub names headings: lower case, hyphens for spaces, no punctuation, numbered when repeated."""
    seen: Counter[str] = Counter()
    anchors = set()
    for title in _HEADING.findall(read_prose(path)):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        anchors.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return anchors


def links_of(path: Path) -> list[str]:
    return _LINK.findall(read_prose(path))


def is_relative(target: str) -> bool:
    return not re.match(r"[a-z][a-z0-9+.-]*:", target)


@pytest.mark.parametrize("name", NAMES)
def test_every_relative_link_and_anchor_leads_somewhere(name: str) -> None:
    source = ROOT / name
    for target in filter(is_relative, links_of(source)):
        file, _, anchor = target.partition("#")
        found = (source.parent / file).resolve() if file else source
        assert found.exists(), f"{name}: {target}"
        assert found.is_relative_to(ROOT), f"{name}: {target} leads out of the repository"
        assert not anchor or (found.suffix == ".md" and anchor in anchors_of(found)), f"{name}: {target}"


@pytest.mark.parametrize("name", NAMES)
def test_every_path_of_the_code_exists(name: str) -> None:
    """`core/…`, `services/…` and `adapters/…` are short for those in `shared`."""
    for path in _PATH.findall((ROOT / name).read_text(encoding="utf-8")):
        assert (ROOT / path).exists() or (ROOT / "shared" / path).exists(), f"{name}: {path}"


def test_the_product_points_to_pages_and_headings_that_exist() -> None:
    """A message says `docs/page.md`, or `docs/page.md, Heading`."""
    sources = [path for top in ("bot", "shared", "web", "worker") for path in (ROOT / top).rglob("*.py")]
    named = {found for path in sources for found in _POINTER.findall(path.read_text(encoding="utf-8"))}
    assert len(named) >= 5
    for page, heading in sorted(named):
        assert page in PAGES, page
        titles = _HEADING.findall(read_prose(ROOT / page))
        assert not heading or any(heading.startswith(title) for title in titles), f"{page}: {heading}"


def test_every_page_can_be_reached_from_the_readme() -> None:
    linked = {target.partition("#")[0] for target in links_of(ROOT / "README.md")}
    assert set(PAGES) - linked == set()


def test_the_readme_can_be_read_in_one_go() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= MOST_README_LINES


@pytest.mark.parametrize("name", PAGES)
def test_a_page_begins_with_one_sentence_that_says_what_it_answers(name: str) -> None:
    title, first, *_ = read_prose(ROOT / name).split("\n\n")
    assert re.fullmatch(r"# .+", title)
    assert re.match(r"This page (lists|explains|says|shows|defines) ", first), first
    assert re.findall(r"[.!?](?=\s|$)", first) == ["."], "one sentence"
    assert first.endswith(".")


@pytest.mark.parametrize("name", NAMES)
def test_no_document_uses_words_that_readers_stumble_over(name: str) -> None:
    """Names of tests are not looked at."""
    lines = [line for line in read_prose(ROOT / name).splitlines() if not line.startswith("* `")]
    assert [line for line in lines if find_stumbles(line)] == []


def test_pictures_are_small_and_all_of_them_are_shown() -> None:
    shown = {(page.parent / target).resolve() for page in DOCUMENTS for target in links_of(page)}
    for picture in (ROOT / "docs" / "pictures").iterdir():
        assert picture.stat().st_size <= MOST_PICTURE_BYTES, picture.name
        assert picture.resolve() in shown, picture.name


def test_anchors_are_those_that_a_reader_sees(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One, two\n\n## A `name` & [more](x.md)\n\n## One, two\n\n```sh\n# no heading\n```\n")
    assert anchors_of(page) == {"one-two", "a-name--more", "one-two-1"}
