"""Recorded conversations played through real processes, and what is said to whoever asks for nonsense."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, DummyCookieJar

from shared.config.settings import load_settings
from tests.acceptance.replay.recordings import LONG, recording
from tests.kit.replay import main
from tests.kit.replay.evidence import DatabaseProbe
from tests.kit.replay.play import play, steps
from tests.kit.replay.scripts import BadScript, ConversationScript, read_scripts
from tests.kit.replay.system import TemporaryInstallation
from tests.kit.replay.verdict import ReplayVerdict, judge, total
from tests.kit.replay.visitor import VisitorScreen


def test_one_speakers_words_are_the_persons_messages(tmp_path: Path) -> None:
    (script,) = read_scripts(recording(tmp_path, messages=3))
    assert (script.id, script.person, script.sessions) == ("one", "Ada", 1)
    assert len(script.messages) == 3
    assert script.messages[0].startswith("[1:56 pm on 8 May, 2023] 0: I walked")
    assert script.messages[1].startswith("1: I walked")


def test_picture_is_replayed_by_its_caption(tmp_path: Path) -> None:
    path = tmp_path / "pictures.json"
    line = {"speaker": "Ada", "text": "Look!", "blip_caption": "a red boat"}
    path.write_text(json.dumps({"sample_id": "p", "conversation": {"speaker_a": "Ada", "session_1": [line]}}))
    assert read_scripts(path)[0].messages == ("Look! (shows a picture: a red boat)",)


def test_every_message_is_played_once_and_some_together() -> None:
    messages = [str(number) for number in range(40)]
    played = list(steps(messages))
    assert [text for step in played for text in step] == messages
    assert {len(step) for step in played} == {1, 2, 3}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\x89PNG", "is not JSON"),
        (b"[]", "holds no conversations"),
        (b"[1]", "has no `conversation`"),
        (b'[{"conversation": {}}]', "has no `speaker_a`"),
        (b'[{"conversation": {"speaker_a": "A", "session_1": 3}}]', "is not a list"),
        (b'[{"conversation": {"speaker_a": "A", "session_1": [{"text": 1}]}}]', "without `speaker`"),
        (b'[{"conversation": {"speaker_a": "A", "session_1": []}}]', "has no words of A"),
    ],
)
def test_a_file_of_another_shape_is_refused_with_advice(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "wrong.json"
    path.write_bytes(content)
    with pytest.raises(BadScript, match=reason) as caught:
        read_scripts(path)
    assert caught.value.advice


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["missing.json"], "there is no file"),
        (["FILE", "--only", "nobody"], "It has: one."),
        (["FILE", "--channel", "telegram", "--url", "http://127.0.0.1:1"], "system of its own"),
        (["FILE", "--window", "0"], "at least 1"),
        (["FILE", "--window", "16000", "--url", "http://127.0.0.1:1"], "started for it"),
        (["FILE", "--url", "http://127.0.0.1:1"], "nothing answers"),
        (["FILE", "--url", "ftp://x"], "not an address"),
        (["FILE", "--speed", "warp"], "--help"),
        ([], "--help"),
    ],
)
def test_what_cannot_be_played_is_refused_in_two_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    path = str(recording(tmp_path))
    settings = load_settings(data_dir=tmp_path / "data")
    try:
        code = main([path if word == "FILE" else word for word in arguments], settings)
    except SystemExit as left:
        code = int(str(left.code))
    words = capsys.readouterr()
    assert code == 2
    assert said in words.err
    assert len(words.err.splitlines()) <= 2
    assert not words.out


def seen(**finals: int) -> VisitorScreen:
    found = VisitorScreen(sent=["a", "b"], acknowledged={"a": 1, "b": 3}, turns={"a": 1, "b": 2})
    found.finals.update({int(turn[1:]): count for turn, count in finals.items()})
    return found


def test_an_acknowledged_message_without_an_answer_is_lost() -> None:
    verdict = judge("x", "", seen(t1=1), None)
    assert (verdict.answered, verdict.lost, verdict.doubled, verdict.broken) == (1, 1, 0, 1)


def test_two_last_words_of_one_turn_are_a_double() -> None:
    assert judge("x", "", seen(t1=1, t2=2), None).doubled == 1


def test_a_total_sums_what_counts_and_takes_the_largest_size() -> None:
    def one(**numbers: Any) -> ReplayVerdict:
        plain = judge("x", "", seen(t1=1, t2=1), None).as_json()
        return ReplayVerdict(**{**plain, **numbers})

    whole = total([one(notes=2, max_context=50, usd=None), one(notes=3, max_context=70, usd=1.0)])
    assert (whole.sent, whole.notes, whole.max_context, whole.usd) == (4, 5, 70, None)


@pytest.mark.faults
@pytest.mark.timeout(400)
async def test_a_long_talk_survives_a_killed_web_process() -> None:
    """Small window, so that flush and compaction happen; nothing is lost, doubled or out of order."""
    texts = tuple(f"{number}: {LONG * 8}" for number in range(24))
    script = ConversationScript(id="long", person="Ada", messages=texts, sessions=1)
    own = TemporaryInstallation(load_settings(), window=8_000)
    async with own as system, ClientSession(cookie_jar=DummyCookieJar()) as http:
        done = 0

        def hurt(count: int, _: str) -> None:
            nonlocal done
            before, done = done, done + count
            if before < 8 <= done:
                os.kill(int((own.folder / "web.pid").read_text()), signal.SIGKILL)

        async with asyncio.timeout(300):
            played = await play(script, http=http, url=system.url, speed="max", on_progress=hurt)
        assert system.database_url is not None
        witness = await DatabaseProbe.connect(system.database_url)
        try:
            assert await witness.wait_for_jobs([played.visitor.session]) == 0
            evidence = await witness.collect(played.visitor.session)
        finally:
            await witness.close()
    verdict = judge("long", played.visitor.session, played.visitor.seen, evidence)
    assert (verdict.sent, verdict.acknowledged, verdict.answered) == (24, 24, 24)
    assert (verdict.lost, verdict.doubled, verdict.out_of_order, verdict.over_hard) == (0, 0, 0, 0)
    assert verdict.reconnects >= 1
    assert verdict.flushes
    assert verdict.compactions
    assert not own.folder.exists()
