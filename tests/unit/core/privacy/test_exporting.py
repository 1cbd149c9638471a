"""A file of somebody else's words: as they were written, and nothing of them is drawn or fetched."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from markdown_it import MarkdownIt

from shared.core.privacy.export import (
    ExportedSession,
    ExportHead,
    fence_block,
    inline_code,
    markdown_messages,
    markdown_session,
    markdown_start,
)
from shared.locales import catalogue

ENGLISH = catalogue("commands", "en")

AT = datetime(2026, 11, 22, 9, 30, tzinfo=UTC)
SPITEFUL = (
    '<img src="https://evil.example/a.png">',
    "![a](https://evil.example/b.png)",
    "Well.\n\n**assistant** · 2026-11-22 09:31\n\nI said that.",
    "```\n![a](https://evil.example/c.png)\n```\n![b](https://evil.example/d.png)",
    "`````\n<script>alert(1)</script>",
    "`<b>`",
    "![a]\n\n[a]: https://evil.example/e.png",
    "---\nname: root",
    "<https://evil.example/f>",
)
DRAWN = ("html_block", "html_inline", "image", "link_open")
SPOKEN = (*DRAWN, "strong_open")


def drawn(text: str, what: tuple[str, ...] = DRAWN) -> list[str]:
    """What a viewer would make of it, beside words."""
    tokens = MarkdownIt("commonmark").parse(text)
    every = [inner for token in tokens for inner in (token, *(token.children or ()))]
    return [token.type for token in every if token.type in what]


def head(words: str) -> ExportHead:
    session = ExportedSession(
        id=1, public_id="8f2c41", created_at=AT, last_seq=2,
        facts={"agent": "default", "goal": words, "places": [{"title": words}]},
        summaries=[{"kind": "summary", "turns": [1, 2], "at": "2026", "in_use": True, "text": words,
                    "summary_text": words, "key_facts": [words], "decisions": [], "open_questions": [],
                    "action_items": []}],
        pins=[1], attachments=[{"name": words}],
    )  # fmt: skip
    note = {"text": words, "kind": "fact", "authority": "person", "from_turn": 1}
    return ExportHead(
        person={"display_name": words},
        sessions=[session],
        notes=[note],
        more={"feedback": [{"words": words}]},
    )


@pytest.mark.control("S19")
@pytest.mark.parametrize("words", SPITEFUL)
def test_export_viewer_renders_stored_text_as_text_only(words: str) -> None:
    said = markdown_messages(
        [{"author": "person", "text": words, "at": "2026-11-22T09:30:00Z"}], verbatim=True
    )
    assert drawn(said, SPOKEN) == ["strong_open"]
    found = head(words)
    opening = markdown_start(found, ENGLISH, at=AT, verbatim=True)
    assert drawn(opening) == []
    assert drawn(markdown_session(found.sessions[0], ENGLISH, verbatim=True)) == []
    front = opening.split("---\n")[1]
    values = {name: json.loads(value) for name, _, value in (x.partition(": ") for x in front.splitlines())}
    assert values["name"] == words
    assert values["key_facts"] == [words]


@pytest.mark.parametrize("words", [*SPITEFUL, "", "plain", "`", "a ``b`` c"])
def test_fenced_words_are_the_same_words(words: str) -> None:
    (token,) = MarkdownIt("commonmark").parse(fence_block(words))
    assert token.type == "fence"
    assert token.content.removesuffix("\n") == words


def test_what_stands_in_one_line_stays_in_it() -> None:
    words = inline_code("a\n# b `c` ``d``")
    inline = MarkdownIt("commonmark").parse(f"- {words} (fact)")
    (shown,) = (
        child.content for token in inline for child in token.children or () if child.type == "code_inline"
    )
    assert shown == "a # b `c` ``d``"
    assert inline_code("  ") == ""


def test_a_persons_own_copy_reads_as_it_was_written() -> None:
    message = {"author": "assistant", "text": "**Yes.**", "at": "2026-11-22T09:30:00Z"}
    assert markdown_messages([message]) == "**assistant** · 2026-11-22 09:30\n\n**Yes.**\n\n"
