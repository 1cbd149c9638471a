"""What the judge of transcripts finds, and the two runs of killed servers in their short form."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from typing import Any, cast

import pytest

from shared import __main__ as evertalk
from tests.faults.chaos import Chaos, Phase, Plan, Report, Strikes, main, postgres_killed
from tests.faults.lengths import lasting
from tests.faults.provided import provided_by
from tests.faults.transcripts import BRING, Kills, Line, Texter, Transcript, judged
from tests.kit.deployment.breakable_servers import Case, Plant
from tests.kit.deployment.forks import Hatchery
from tests.kit.deployment.person import PATIENCE_SECONDS, Person
from tests.kit.deployment.telegram import Telegram
from tests.kit.fakes.bot_api import running_bot_api
from tests.kit.fakes.messages_api.harness import RunningFake

SMOKE = Plan(
    phases=(
        Phase(name="three killed at once", seconds=8.0, strikes=Strikes(three=(2.0, 3.0))),
        Phase(name="all of it", seconds=6.0, strikes=Strikes(one=(1.5, 2.5), postgres=(3.0, 4.0))),
    ),
    visitors=4,
    texters=4,
    gap_seconds=1.0,
)


@pytest.mark.night
@pytest.mark.row("F53")
@pytest.mark.timeout(900)
async def test_conversations_survive_kills_of_postgres(
    case: Case, plant: Plant, hatchery: Hatchery, fake: RunningFake
) -> None:
    plan = postgres_killed(lasting(12.0, 300.0))
    report = await _raged(plan, case, plant, hatchery, fake)
    assert report.struck["Postgres"] >= plan.phases[0].seconds // 10


@pytest.mark.row("F53")
@pytest.mark.timeout(900)
async def test_conversations_survive_kills_of_every_process(
    case: Case, plant: Plant, hatchery: Hatchery, fake: RunningFake
) -> None:
    """`./evertalk test chaos` in its shortest form."""
    report = await _raged(SMOKE, case, plant, hatchery, fake)
    assert report.struck["three at once"] >= 1
    assert report.struck["Postgres"] >= 1
    assert sum(report.struck.values()) >= 6


@pytest.mark.row("F53")
async def test_a_command_that_runs_only_once_is_not_lost_in_silence(
    case: Case, hatchery: Hatchery, fake: RunningFake
) -> None:
    """Its update has ended when its connection is cut off, so that nobody tries again."""
    async with running_bot_api() as api:
        telegram = Telegram(api=api, provider=fake, case=case, hatchery=hatchery)
        ada = await telegram.talker()
        async with telegram.bot() as bot:
            await telegram.serves(bot)
            await ada.ask("I live by the river.")
            await telegram.rests()  # else the end of that turn may be what waits
            async with telegram.sessions_locked() as held_up:
                await ada.person.command("new")
                await held_up.waits()
                await held_up.break_off()
            await ada.person.sees("did not work just now")
            await ada.ask("And I have a boat there.")
            await telegram.promises_hold(strays=1)


@pytest.mark.row("F53")
@pytest.mark.parametrize(
    ("kind", "trigger", "deferred"), [("flush", "near_limit", "cooldown"), ("compact", "idle", "talking")]
)
async def test_chaos_run_waits_for_no_job_that_rests(
    case: Case, plant: Plant, fake: RunningFake, kind: str, trigger: str, deferred: str
) -> None:
    deferred_jobs = f"SELECT count(*) FROM jobs WHERE state = 'due' AND outcome ->> 'deferred' = '{deferred}'"
    async with case.web(**provided_by(fake)), Person(case.port) as person:
        await person.ask("I live by the river.")
        await case.run(_FLUSHED_JUST_NOW)
        await case.run(_ASKED.format(kind=kind, trigger=trigger))
        async with case.worker(**provided_by(fake)):
            await case.until(deferred_jobs)
            chaos = Chaos(plan=SMOKE, plant=plant, case=case, provider=fake, telegram=cast("Any", None))
            async with asyncio.timeout(PATIENCE_SECONDS):
                await chaos._settle()
            assert await case.rows("SELECT state FROM jobs WHERE state <> 'done'") == []
            assert await chaos._invariants() == []


_FLUSHED_JUST_NOW = """
INSERT INTO flushes (session_id, cycle, threshold, from_turn, through_turn, outcome, ended_at)
SELECT id, cycle - 1, 'near_limit', 1, 0, 'nothing', now() FROM sessions
"""
_ASKED = """
INSERT INTO jobs (kind, session_id, key, trigger, payload)
SELECT '{kind}', id, '{kind}:{trigger}', '{trigger}',
       jsonb_build_object('cycle', cycle, 'threshold', '{trigger}', 'from_turn', 1, 'through_turn', 1)
  FROM sessions
"""


async def _raged(plan: Plan, case: Case, plant: Plant, hatchery: Hatchery, fake: RunningFake) -> Report:
    async with running_bot_api() as api:
        telegram = Telegram(api=api, provider=fake, case=case, hatchery=hatchery)
        report = await Chaos(plan=plan, plant=plant, case=case, provider=fake, telegram=telegram).run()
    assert report.broken == [], report.table()
    for one in report.by_channel.values():
        assert one.sent == one.answered > 0
    return report


def of(sent: str, *seen: str, own: str | None = None) -> Transcript:
    lines = tuple(Line(text=text, at=float(number)) for number, text in enumerate(seen))
    shown = sent if own is None else own
    return Transcript(
        person="t1_", channel="Telegram", sent=tuple(sent.split()), own=tuple(shown.split()), seen=lines
    )


def test_what_everybody_got_once_and_in_order_is_well() -> None:
    found = judged([of("t1_x1 t1_x2 t1_x3", "to t1_x1", "a notice", "to t1_x2 and t1_x3"), of("")])
    assert (found.people, found.sent, found.answered, found.broken) == (2, 3, 3, [])


@pytest.mark.parametrize(
    ("transcript", "what"),
    [
        (of("t1_x1 t1_x2", "to t1_x1"), "lost: t1_x2 was never answered"),
        (of("t1_x1", "to t1_x1", own=""), "lost: t1_x1 is not on its own screen"),
        (of("t1_x1", "to t1_x1", "to t1_x1"), "doubled: t1_x1 was answered 2 times"),
        (of("t1_x1", "to t1_x1", own="t1_x1 t1_x1"), "doubled: t1_x1 is there 2 times"),
        (of("t1_x1 t1_x2", "to t1_x2", "to t1_x1"), "out of order: t1_x2 was answered before t1_x1"),
        (of("t1_x1 t1_x2", "to t1_x2 and t1_x1"), "out of order: t1_x2 was answered before t1_x1"),
        (of("t1_x1", "to t1_x1 and t2_x1"), "out of order: t2_x1 of somebody else was answered"),
    ],
)
def test_chaos_judge_reports_each_broken_promise(transcript: Transcript, what: str) -> None:
    assert judged([transcript]).broken == [what]


@pytest.mark.parametrize(("killed_at", "strays"), [(0.5, 1), (2.9, 1), (3.5, 0), (-0.5, 0)])
def test_bubble_of_a_bot_killed_while_sending_counts_as_stray(killed_at: float, strays: int) -> None:
    found = judged([of("t1_x1", "to t1_x1", "to t1_x1")], kills=Kills(bot=[killed_at]))
    assert (found.strays, len(found.doubled)) == (strays, 1 - strays)


async def test_chaos_person_counts_bubbles_that_shrink_or_vanish() -> None:
    phone: Any = None
    texter = Texter(phone, "t1_", 1)
    grows = (
        (1, "sent", "You said"),
        (1, "edited", "You said t1_x1 now."),
        (1, "edited", "You said t1_x1 now"),
    )
    shrinks = ((2, "sent", "You said t1_x2"), (2, "edited", "You"), (2, "edited", "You said t1_x2 now."))
    for message_id, kind, text in (*grows, *shrinks, (3, "sent", "You said t1_x3"), (3, "deleted", "")):
        view = {"message_id": message_id, "kind": kind, "by": "bot", "text": text, "at": 1.0}
        texter._note(view)
    assert len(texter.transcript().flickers) == 2
    assert judged([texter.transcript()]).flickers == 2


@pytest.mark.parametrize(("away", "strays"), [((1.0, 8.0), 1), ((-5.0, 7.5), 1), ((1.0, 2.0), 0)])
def test_without_storage_no_bot_can_store_what_it_has_sent(away: tuple[float, float], strays: int) -> None:
    kills = Kills(bot=[9.0], storage_away=[away])
    found = judged([of("t1_x1", "to t1_x1", "to t1_x1")], kills=kills)
    assert (found.strays, len(found.doubled)) == (strays, 1 - strays)


class Phone:
    """What a telephone shows, view by view, and which buttons were pressed on it."""

    def __init__(self) -> None:
        self.shown: list[dict[str, Any]] = []
        self.tapped: list[int] = []

    def shows(
        self, kind: str, message_id: int, text: str, *, by: str = "bot", button: str = "", about: str = ""
    ) -> None:
        keys = {"inline_keyboard": [[{"text": button}]]} if button else None
        self.shown.append(
            {"number": len(self.shown) + 1, "at": time.time(), "kind": kind, "by": by,
             "message_id": message_id, "text": text, "reply_markup": keys,
             "reply_to_message": {"text": about} if about else None}
        )  # fmt: skip

    async def views(self, *, since: int) -> list[dict[str, Any]]:
        return [view for view in self.shown if view["number"] > since]

    async def tap(self, label: str, *, message_id: int) -> None:
        assert label == BRING
        self.tapped.append(message_id)

    async def say(self, text: str) -> None:
        self.shows("said", len(self.shown) + 1, text, by="person")


async def test_who_misses_an_answer_presses_the_button_that_brings_it_once() -> None:
    phone = Phone()
    ann = Texter(cast("Any", phone), "t1_", 1)
    await ann.say_something()
    phone.shows("sent", 2, "It may be missing.", button=BRING)
    await ann.glance()
    assert phone.tapped == [], "it may still be on its way"
    await ann.say_something()
    phone.shows("sent", 4, "Noted: t1_x2")
    await ann.glance()
    await ann.glance()
    assert phone.tapped == [2]
    assert ann.missing()
    phone.shows("edited", 2, "Noted: t1_x1")
    await ann.glance()
    assert not ann.missing()
    assert judged([ann.transcript()]).broken == []


async def test_chaos_person_requests_no_answer_that_is_already_shown() -> None:
    phone = Phone()
    ann = Texter(cast("Any", phone), "t1_", 1)
    for _ in range(3):
        await ann.say_something()
    phone.shows("sent", 11, "Noted: t1_x1")
    phone.shows("sent", 12, "It may be missing.", button=BRING, about="I say t1_x1 now.")
    phone.shows("sent", 13, "It may be missing.", button=BRING, about="I say t1_x2 now.")
    phone.shows("sent", 14, "Noted: t1_x3")
    await ann.glance()
    assert phone.tapped == [13]


def test_command_line_passes_the_arguments_of_chaos_on(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[list[str]] = []

    class Started(subprocess.Popen[bytes]):
        def __init__(self, command: list[str], **_: object) -> None:
            called.append(command[1:])
            super().__init__([sys.executable, "-c", "raise SystemExit(7)"])

    monkeypatch.setattr(subprocess, "Popen", Started)
    assert evertalk.main(["test", "chaos", "--minutes", "30"]) == 7
    assert called == [["-m", "tests.faults.chaos", "--minutes", "30"]]


@pytest.mark.parametrize("words", [["--minutes", "0"], ["--minutes", "soon"], ["--people", "1"]])
def test_what_is_no_run_is_said_before_anything_starts(
    capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(words)
    assert left.value.code == 2
    assert "evertalk test chaos" in capsys.readouterr().err
