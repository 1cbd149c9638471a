"""Exports of other programs by their public forms, and hostile files."""

from __future__ import annotations

import json
import tracemalloc
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from shared.adapters.past.exports import read_past
from shared.adapters.past.json_stream import MOST_VALUE_CHARS
from shared.core.memory.past import MOST_CHARS, MOST_LINES, PastMessage, PastSource, group_turns
from shared.core.values.errors import BadInput

NOW = datetime(2026, 11, 29, tzinfo=UTC)
TELEGRAM: dict[str, Any] = {
    "name": "Ben Berg",
    "type": "personal_chat",
    "id": 4242,
    "messages": [
        {"id": 1, "type": "service", "date": "2021-03-04T10:00:00", "date_unixtime": "1614852000",
         "actor": "Ada", "action": "phone_call", "text": "", "text_entities": []},
        {"id": 2, "type": "message", "date": "2021-03-04T10:00:05", "date_unixtime": "1614852005",
         "from": "Ben Berg", "from_id": "user4242", "text": "Where is the bicycle?", "text_entities": []},
        {"id": 3, "type": "message", "date": "2021-03-04T10:01:00", "date_unixtime": "1614852060",
         "from": "Ada", "from_id": "user17", "photo": "photos/1.jpg", "width": 3, "height": 4,
         "text": ["In the ", {"type": "bold", "text": "cellar"}, ", see ", {"type": "link", "text": "x.org"}],
         "text_entities": []},
        {"id": 4, "type": "message", "date": "2021-03-04T10:02:00", "date_unixtime": "1614852120",
         "from": "Ada", "from_id": "user17", "media_type": "sticker", "text": ""},
    ],
}  # fmt: skip


def chat_node(role: str, text: str, parent: str | None, at: float | None, **more: Any) -> dict[str, Any]:
    content = {"content_type": "text", "parts": [text]}
    message = {"author": {"role": role}, "create_time": at, "content": content, "metadata": {}, **more}
    return {"parent": parent, "children": [], "message": message}


CHATGPT: list[dict[str, Any]] = [
    {
        "title": "Bread", "create_time": 1700000000.5, "current_node": "d",
        "mapping": {
            "root": {"parent": None, "children": ["a"], "message": None},
            "a": chat_node("system", "You are ChatGPT.", "root", None),
            "b": chat_node("user", "How long does rye dough rest?", "a", 1700000001.0),
            "other": chat_node("assistant", "An answer that was made again.", "b", 1700000002.0),
            "c": chat_node("assistant", "Twelve hours.", "b", 1700000003.0),
            "d": chat_node("tool", "{}", "c", 1700000004.0),
        },
    },
]  # fmt: skip
CLAUDE: list[dict[str, Any]] = [
    {
        "uuid": "1", "name": "Trip", "created_at": "2024-05-01T08:00:00.000000Z",
        "chat_messages": [
            {"sender": "human", "text": "Which train to Ghent?", "created_at": "2024-05-01T08:00:01Z"},
            {"sender": "assistant", "text": "", "created_at": "2024-05-01T08:00:09.5+00:00", "content": [
                {"type": "thinking", "text": "hidden"}, {"type": "text", "text": "The IC at nine."}]},
        ],
    },
]  # fmt: skip


def read(source: PastSource, content: Any, folder: Path, **more: Any) -> list[PastMessage]:
    path = folder / "file"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return list(read_past(source, path, **{"zone": UTC, "now": NOW, **more}))


def test_telegram_chat_has_own_and_other_messages(tmp_path: Path) -> None:
    other, own = read("telegram", TELEGRAM, tmp_path)
    assert (other.speaker, other.text) == ("Ben Berg", "Where is the bicycle?")
    assert (own.speaker, own.text) == ("", "In the cellar, see x.org")
    assert own.at == datetime(2021, 3, 4, 10, 1, tzinfo=UTC)
    assert own.thread == "Ben Berg"


def test_telegram_account_has_all_chats(tmp_path: Path) -> None:
    group = {**TELEGRAM, "type": "private_group", "name": "Rowing", "id": 9}
    account = {
        "about": "x", "personal_information": {"user_id": 17, "first_name": "Ada"},
        "chats": {"about": "y", "list": [TELEGRAM, group]}, "left_chats": {"list": []},
    }  # fmt: skip
    found = read("telegram", account, tmp_path)
    assert [(one.thread, one.speaker) for one in found] == [
        ("Ben Berg", "Ben Berg"), ("Ben Berg", ""), ("Rowing", "Ben Berg"), ("Rowing", ""),
    ]  # fmt: skip


def test_telegram_group_names_all_but_the_person(tmp_path: Path) -> None:
    group = {**TELEGRAM, "type": "private_group"}
    assert [one.speaker for one in read("telegram", group, tmp_path)] == ["Ben Berg", "Ada"]
    assert [one.speaker for one in read("telegram", group, tmp_path, me="Ada")] == ["Ben Berg", ""]


def test_telegram_bot_is_the_assistant(tmp_path: Path) -> None:
    other, own = read("telegram", {**TELEGRAM, "type": "bot_chat"}, tmp_path)
    assert (other.is_assistant, other.speaker, own.is_assistant) == (True, "", False)


def test_chatgpt_conversation_is_the_branch_that_was_shown(tmp_path: Path) -> None:
    found = read("chatgpt", CHATGPT, tmp_path)
    assert [(one.is_assistant, one.text) for one in found] == [
        (False, "How long does rye dough rest?"), (True, "Twelve hours."),
    ]  # fmt: skip
    assert {one.thread for one in found} == {"Bread"}


def test_chatgpt_circle_of_messages_ends(tmp_path: Path) -> None:
    circle = {"a": chat_node("user", "one", "b", 1.7e9), "b": chat_node("user", "two", "a", 1.7e9)}
    found = read("chatgpt", [{"mapping": circle, "current_node": "a"}], tmp_path)
    assert [one.text for one in found] == ["two", "one"]


def test_claude_conversation_shows_no_thoughts(tmp_path: Path) -> None:
    question, answer = read("claude", CLAUDE, tmp_path)
    assert (question.is_assistant, question.text) == (False, "Which train to Ghent?")
    assert (answer.is_assistant, answer.text) == (True, "The IC at nine.")


AMERICAN = """\
2/13/21, 6:45\u202fPM - Messages and calls are end-to-end encrypted.
2/13/21, 6:46\u202fPM - Ada: Hello: you
2/14/21, 12:05\u202fAM - Ben: <Media omitted>
2/14/21, 12:06\u202fAM - Ben: Hi
"""


@pytest.mark.parametrize(
    ("lines", "times", "texts"),
    [
        (
            "[13.02.21, 18:45:12] Ada: Where\nis it?\n[14.02.21, 07:00:00] Ben: In the cellar.",
            ["2021-02-13 18:45:12", "2021-02-14 07:00:00"],
            ["Where\nis it?", "In the cellar."],
        ),
        (
            AMERICAN,
            ["2021-02-13 18:46:00", "2021-02-14 00:06:00"],
            ["Hello: you", "Hi"],
        ),
        ("\ufeff\u200e[2021/02/13 18:45:12] Ada: Ja", ["2021-02-13 18:45:12"], ["Ja"]),
    ],
)
def test_whatsapp_chat_in_the_forms_of_its_apps(
    lines: str, times: list[str], texts: list[str], tmp_path: Path
) -> None:
    found = read("whatsapp", lines, tmp_path)
    assert [f"{one.at:%Y-%m-%d %H:%M:%S}" for one in found] == times
    assert [one.text for one in found] == texts
    assert {one.speaker for one in read("whatsapp", lines, tmp_path, me="Ada")} <= {"", "Ben"}


NESTED = "[" * 200_000


@pytest.mark.parametrize("source", ["telegram", "chatgpt", "claude"])
@pytest.mark.parametrize(
    "content",
    [
        "", "no JSON", NESTED, "{" * 10, '{"messages": ' + NESTED, '{"a":' * 50_000, "[{]", "[1, 2",
        "{}", "[]", "7",
        '{"messages": [{"type": "message", "date_unixtime": ' + "9" * 5_000 + "}]}",
        '[{"mapping": {}, "create_time": 1e' + "9" * 2_000 + "}]", '{"messages": [NaN]}', "[Infinity]",
        b"PK\x03\x04 rest of an archive", b"\x1f\x8b\x08 rest", b"\xff\xfe[\x00]\x00", b'["\xc3\x28"]',
    ],
    ids=lambda content: repr(content)[:20],
)  # fmt: skip
def test_file_that_is_no_export_is_refused(source: PastSource, content: str | bytes, tmp_path: Path) -> None:
    with pytest.raises(BadInput) as refused:
        read(source, content, tmp_path)
    assert refused.value.advice


WRONG: tuple[Any, ...] = (None, True, 7, 1e300, -1e300, "x", [], [[]], {}, {"a": 1}, "\ud800", "9" * 400)


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: repr(wrong)[:12])
def test_wrong_types_anywhere_are_passed_over(wrong: Any, tmp_path: Path) -> None:
    samples: dict[PastSource, Any] = {"telegram": TELEGRAM, "chatgpt": CHATGPT, "claude": CLAUDE}
    for source, sample in samples.items():
        for variant in _variants(sample, wrong):
            try:
                found = read(source, json.dumps(variant), tmp_path)
            except BadInput:
                continue
            for turn in group_turns(found):
                assert all(line.text.encode() for line in turn.lines)


def _variants(value: Any, wrong: Any) -> list[Any]:
    """Put the wrong value in the place of each value, one at a time."""
    if isinstance(value, dict):
        return [wrong, *({**value, key: one} for key in value for one in _variants(value[key], wrong))]
    if isinstance(value, list):
        places = [(at, one) for at in range(len(value)) for one in _variants(value[at], wrong)]
        return [wrong, *([*value[:at], one, *value[at + 1 :]] for at, one in places)]
    return [wrong]


def test_archive_bomb_is_not_unpacked(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("conversations.json", "0" * 2**20)
    with pytest.raises(BadInput, match="archive"):
        read("chatgpt", (tmp_path / "bomb.zip").read_bytes(), tmp_path)


def test_value_without_end_is_refused_before_it_is_read_whole(tmp_path: Path) -> None:
    with pytest.raises(BadInput):
        read("telegram", '{"messages": ["' + "x" * (3 * MOST_VALUE_CHARS), tmp_path)


def test_long_text_and_future_date_are_bounded(tmp_path: Path) -> None:
    rows = [
        {
            "type": "message",
            "date_unixtime": at,
            "from": "A\ud800\0",
            "from_id": "user1",
            "text": "x" * 50_000,
        }
        for at in ("1614852005", "9999999999", "-99999999999")
    ]
    [message] = read("telegram", {**TELEGRAM, "messages": rows}, tmp_path)
    [turn] = group_turns([message])
    assert len(turn.lines[0].text) == MOST_CHARS
    assert "\0" not in turn.lines[0].text


def test_turns_are_the_same_from_any_beginning_of_one(tmp_path: Path) -> None:
    rows = [
        {"type": "message", "date_unixtime": str(1614852005 + 600 * at), "text": f"line {at}",
         "from": "Ben Berg" if at % 3 else "Ada", "from_id": "user4242" if at % 3 else "user17"}
        for at in range(200)
    ]  # fmt: skip
    found = read("telegram", {**TELEGRAM, "type": "bot_chat", "messages": rows}, tmp_path)
    turns = list(group_turns(found))
    assert sum(turn.messages for turn in turns) == len(found)
    assert all(1 <= len(turn.lines) <= MOST_LINES for turn in turns)
    assert all([line.author for line in turn.lines].count("assistant") <= 1 for turn in turns)
    assert all(turn.lines[0].author == "person" for turn in turns)
    skipped = sum(turn.messages for turn in turns[:7])
    assert list(group_turns(found[skipped:])) == turns[7:]


def _peak(path: Path, number: int) -> int:
    """Return the most bytes that reading a chat of so many messages holds."""
    with path.open("w", encoding="utf-8") as file:
        file.write('{"name": "Ben", "type": "personal_chat", "id": 1, "messages": [')
        for at in range(number):
            row = {
                "type": "message",
                "date_unixtime": str(1614852005 + at),
                "from": "Ben",
                "from_id": "user1",
            }
            file.write(("," if at else "") + json.dumps({**row, "text": f"Line {at} " + "x" * 200}))
        file.write("]}")
    tracemalloc.start()
    try:
        counted = sum(turn.messages for turn in group_turns(read_past("telegram", path, zone=UTC, now=NOW)))
        assert counted == number
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_reading_holds_no_more_of_a_long_chat(tmp_path: Path) -> None:
    assert _peak(tmp_path / "long", 40_000) < 1.5 * _peak(tmp_path / "short", 10_000)
