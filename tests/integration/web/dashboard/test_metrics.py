"""What Prometheus reads: docs/metrics.md lists every series, and every rule is about one of them."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from prometheus_client.parser import text_string_to_metric_families

from shared.adapters.postgres.dashboard.metrics_queries import BUCKETS, Durations, MetricsInsights
from shared.adapters.postgres.db.workers import PostgresWorkers
from shared.adapters.postgres.turns.counters import RunningSums
from shared.adapters.redis.announcer import RedisAnnouncer
from shared.adapters.redis.arq_queue import ArqDoorbell
from shared.adapters.telemetry.health import Health
from shared.config.settings import load_settings
from shared.core.session.turns import DueJob
from shared.runtime import read_version
from tests.kit.dashboard import seed, seed_work
from tests.kit.dashboard.fixtures import Dashboard, Pool
from web.dashboard.metrics import DEPRECATED, METRICS, REMOVED_IN, Scrape

ROOT = Path(__file__).resolve().parents[4]
FILES = ROOT / "web" / "dashboard" / "observability"
PROMTOOL = shutil.which("promtool") or ""
WORDS = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_LANGUAGE = """max sum by le and or rate increase histogram_quantile absent offset m h s state stage kind role
outcome version python duty transport"""
_VALUES = """dead due running waiting worker uncertain queued sending sent turn wait model job refused failed
stopped retention"""


def named(expression: str) -> set[str]:
    """The series that an expression reads."""
    found = set(WORDS.findall(re.sub(r"\[\d+[smh]\]|offset \d+[smh]", "", expression)))
    return found - set(_LANGUAGE.split()) - set(_VALUES.split())


def expressions() -> list[str]:
    board = json.loads((FILES / "grafana.json").read_text())
    rules = yaml.safe_load((FILES / "alerts.yml").read_text())
    told = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    return told + [rule["expr"] for group in rules["groups"] for rule in group["rules"]]


def series() -> set[str]:
    """As Prometheus stores them."""
    parts = {f"{name}{end}" for name, (kind, _) in METRICS.items() if kind == "histogram"
             for end in ("_bucket", "_sum", "_count")}  # fmt: skip
    return parts | {name for name, (kind, _) in METRICS.items() if kind != "histogram"}


def test_rules_and_panels_read_only_exported_metrics() -> None:
    read = {name for expression in expressions() for name in named(expression)}
    assert read - series() == set()


def test_two_web_processes_are_not_counted_twice() -> None:
    """Each tells all that there is: what Prometheus has of several is the same, and never added up."""
    for expression in expressions():
        assert not re.search(r"sum[^(]*\((?!max by \()", expression), expression


def test_every_series_has_a_panel_or_a_rule() -> None:
    read = {name for expression in expressions() for name in named(expression)}
    unseen = {
        name for name, (kind, _) in METRICS.items() if name not in read and f"{name}_bucket" not in read
    }
    assert unseen == set(DEPRECATED)


def test_panels_stand_beside_each_other() -> None:
    places: set[tuple[int, int]] = set()
    for panel in json.loads((FILES / "grafana.json").read_text())["panels"]:
        at = panel["gridPos"]
        own = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not own & places, panel["title"]
        assert at["x"] + at["w"] <= 24
        places |= own


def test_the_document_lists_every_series() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    told = re.findall(r"^\| `([a-z_]+)` \| (counter|gauge|histogram) \| (.+) \|$", page, flags=re.MULTILINE)
    assert {name: (kind, words) for name, kind, words in told} == dict(METRICS)


_TYPES = ("counter", "gauge", "histogram", "summary")
_ENDS = ("_count", "_sum", "_bucket", "_info")
_UNITS = ("ms", "milliseconds", "minutes", "hours", "kb", "kilobytes", "megabytes", "percent", "cents")
"""Prometheus wants base units: seconds, bytes, ratios."""


def find_naming_faults(name: str, kind: str, words: str) -> list[str]:
    """What `promtool check metrics` and the naming conventions find wrong with a series."""
    parts = name.split("_")
    rules = {
        "has no prefix": not name.startswith("evertalk_"),
        "has other characters than small letters and _": not re.fullmatch(r"[a-z][a-z_]*[a-z]", name),
        "is a counter without _total": kind == "counter" and parts[-1] != "total",
        "ends with _total and is no counter": kind != "counter" and parts[-1] == "total",
        "has an end that belongs to another kind": name.endswith(_ENDS) and name != "evertalk_build_info",
        "names its kind": bool(set(parts) & set(_TYPES)),
        "has no base unit": bool(set(parts) & set(_UNITS)),
        "is not described": not words.endswith("."),
    }
    return [fault for fault, holds in rules.items() if holds]


def test_series_are_named_by_the_conventions() -> None:
    faults = {name: find_naming_faults(name, kind, words) for name, (kind, words) in METRICS.items()}
    assert {name for name, found in faults.items() if found} == set(DEPRECATED), faults


def test_former_names_are_served_for_one_version() -> None:
    assert set(DEPRECATED.values()) <= set(METRICS)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    current, removed = ([int(part) for part in text.split(".")] for text in (version, REMOVED_IN))
    assert current < removed, "remove the deprecated names"
    for old, new in DEPRECATED.items():
        assert METRICS[old] == (METRICS[new][0], f"Deprecated, removed in {REMOVED_IN}: use {new}.")


@pytest.mark.skipif(not PROMTOOL, reason="promtool is missing: apt-get install prometheus")
async def test_promtool_accepts_the_exposition(dashboard: Dashboard) -> None:
    await seed_work.jobs(dashboard.pool)
    await seed_work.doubts(dashboard.pool)
    async with dashboard.pool.acquire() as connection:
        await seed.a_long_session(connection, turns=12)
    async with dashboard.http.get(f"{dashboard.url}/metrics") as response:
        text = await response.text()
    assert "evertalk_stage_seconds_bucket" in text
    assert not [old for old in DEPRECATED if old in text]
    checked = await asyncio.to_thread(
        subprocess.run, [PROMTOOL, "check", "metrics"], input=text, text=True, capture_output=True, timeout=60
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


async def scraped(dashboard: Dashboard) -> dict[str, float]:
    async with dashboard.http.get(f"{dashboard.url}/metrics") as response:
        text = await response.text()
    return {
        line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line[0] != "#"
    }


async def test_every_number_is_what_sql_says(dashboard: Dashboard) -> None:
    pool = dashboard.pool
    await seed_work.jobs(pool)
    await seed_work.doubts(pool)
    async with pool.acquire() as connection:
        seeded = await seed.a_session(connection, turns=3, tokens=(10, 20, 30, 40), cost_micro=1500)
        await seed.spend(connection, seeded)
    await pool.execute("UPDATE sessions SET next_turn = next_turn + 1 WHERE id = $1", seeded.session_id)
    async with pool.acquire() as connection:
        await seed.written_along(connection)
    await pool.execute(
        """INSERT INTO alerts (kind, key, ended_at) VALUES
             ('dead_job', 'flush', NULL), ('dead_job', 'compact', NULL), ('dead_job', 'tidy', now())"""
    )
    told = await scraped(dashboard)
    for name, statement in (
        ("evertalk_sessions", "SELECT count(*) FROM sessions"),
        ("evertalk_sessions_unanswered", "SELECT count(*) FROM sessions WHERE answered_turn < next_turn - 1"),
        ('evertalk_jobs{state="dead"}', "SELECT count(*) FROM jobs WHERE state = 'dead'"),
        ("evertalk_jobs_failing",
         "SELECT count(*) FROM jobs WHERE state IN ('due', 'running') AND last_error <> ''"),
        ('evertalk_deliveries{state="uncertain"}',
         "SELECT count(*) FROM deliveries WHERE state = 'uncertain'"),
        ('evertalk_deliveries{state="dead"}', "SELECT count(*) FROM deliveries WHERE state = 'dead'"),
        ('evertalk_turns{state="answered"}', "SELECT count(*) FROM turns WHERE state = 'answered'"),
        ('evertalk_jobs{state="done"}', "SELECT count(*) FROM jobs WHERE state = 'done'"),
        ('evertalk_jobs{state="due"}', "SELECT count(*) FROM jobs WHERE state = 'due'"),
        ("evertalk_spent_today_dollars", "SELECT sum(cost_micro) / 1e6 FROM usage"),
        ("evertalk_cost_dollars_total", "SELECT sum(cost_micro) / 1e6 FROM session_totals"),
        ('evertalk_tokens_total{kind="input"}', "SELECT sum(input_tokens) FROM session_totals"),
        ('evertalk_processes{role="worker"}', "SELECT count(*) FROM workers"),
        ('evertalk_alerts_open{kind="dead_job"}', "SELECT count(*) FROM alerts WHERE ended_at IS NULL"),
    ):  # fmt: skip
        assert told[name] == float(await pool.fetchval(statement)), name
    assert told["evertalk_oldest_due_job_seconds"] >= 300
    assert told["evertalk_cap_dollars"] == 5
    assert told['evertalk_alerts_open{kind="disk_low"}'] == 0
    assert told['evertalk_redis_errors{kind="publish"}'] == 0


async def test_screens_and_providers_are_counted_for_all_living_processes(dashboard: Dashboard) -> None:
    async def lives(role: str, **health: Any) -> int:
        workers = PostgresWorkers(dashboard.pool, health=lambda: health)
        worker_id = await workers.register(role)
        assert await workers.beat(worker_id)
        return worker_id

    def out(provider: str, *, refused: bool = False) -> dict[str, Any]:
        return {"provider": provider, "open": True, "refused": refused}

    await lives("web", screens={"chat": 2, "dashboard": 1, "long_poll": 2}, providers=[out("one.example")])
    await lives(
        "web",
        screens={"chat": 5, "dashboard": 0, "websocket": 4, "long_poll": 1},
        providers=[out("one.example"), out("two.example")],
    )
    await lives("worker", providers=[out("one.example", refused=True)])
    await lives("bot", providers=[{**out("one.example", refused=True), "open": False}])
    gone = await lives("web", screens={"chat": 100})
    await PostgresWorkers(dashboard.pool).stop(gone)
    await dashboard.pool.execute("UPDATE workers SET beat = now() + interval '1 min'")
    told = await scraped(dashboard)
    assert {name: value for name, value in told.items() if "sockets" in name} == {
        'evertalk_sockets{kind="chat"}': 7, 'evertalk_sockets{kind="dashboard"}': 1,
    }  # fmt: skip
    assert {name: value for name, value in told.items() if "chat_connections" in name} == {
        'evertalk_chat_connections{transport="event_stream"}': 0,
        'evertalk_chat_connections{transport="long_poll"}': 3,
        'evertalk_chat_connections{transport="websocket"}': 4,
    }  # fmt: skip
    assert {name: value for name, value in told.items() if "breakers" in name or "refused{" in name} == {
        'evertalk_breakers_open{role="bot"}': 0, 'evertalk_accounts_refused{role="bot"}': 0,
        'evertalk_breakers_open{role="web"}': 2, 'evertalk_accounts_refused{role="web"}': 0,
        'evertalk_breakers_open{role="worker"}': 1, 'evertalk_accounts_refused{role="worker"}': 1,
    }  # fmt: skip


async def test_a_process_counts_its_screens_with_each_heartbeat(dashboard: Dashboard) -> None:
    health = Health(dict, ROOT)
    health.count_screens(lambda: {"chat": 3, "dashboard": 2})
    workers = PostgresWorkers(dashboard.pool, health=health)
    assert await workers.beat(await workers.register("web"))
    await dashboard.pool.execute("UPDATE workers SET beat = now() + interval '1 min'")
    told = await scraped(dashboard)
    assert (told['evertalk_sockets{kind="chat"}'], told['evertalk_sockets{kind="dashboard"}']) == (3, 2)


async def test_what_redis_did_not_take_is_counted_for_all_processes_that_live(dashboard: Dashboard) -> None:
    nowhere = "redis://127.0.0.1:1/0"
    announcer, doorbell = RedisAnnouncer(nowhere), ArqDoorbell(nowhere)
    health = Health(dict, ROOT)
    health.count_redis_errors(lambda: {"publish": announcer.lost, "enqueue": doorbell.silent})
    assert "redis_errors" not in health()
    for number in range(3):
        await announcer.announce(number, {"event_seq": number})
    assert not await doorbell.ring(DueJob(id=1, kind="flush"))
    for role in ("web", "worker"):
        workers = PostgresWorkers(dashboard.pool, health=health)
        assert await workers.beat(await workers.register(role))
    await dashboard.pool.execute("UPDATE workers SET beat = now() + interval '1 min'")
    told = await scraped(dashboard)
    assert told['evertalk_redis_errors{kind="publish"}'] == 2 * 3
    assert told['evertalk_redis_errors{kind="enqueue"}'] == 2


async def answered(pool: Pool, seeded: seed.Seeded, turn: int) -> None:
    """One call of the model, at the end of a turn that took 30 s."""
    await pool.execute(
        """UPDATE turns SET opened_at = now() - interval '30 s', claimed_at = now() - interval '29.5 s',
                            ended_at = now() WHERE session_id = $1 AND turn_no = $2""",
        seeded.session_id, turn,
    )  # fmt: skip
    await pool.execute(
        """INSERT INTO usage (session_id, contact_id, turn_no, purpose, model, input_tokens, output_tokens,
                              cache_read_tokens, cache_write_tokens)
           VALUES ($1, $2, $3, 'chat', 'm', 1, 1, 0, 0)""",
        seeded.session_id, seeded.contact_id, turn,
    )  # fmt: skip


async def test_each_turn_and_each_job_is_counted_once_in_its_bucket(pool: Pool) -> None:
    async with pool.acquire() as connection:
        seeded = await seed.a_session(connection, turns=4)
    durations = Durations(pool)
    await answered(pool, seeded, 1)
    await durations.catch_up()
    assert durations.stages["turn"].counts == [0] * (len(BUCKETS) + 1)  # before anybody looked
    await answered(pool, seeded, 2)
    await answered(pool, seeded, 3)
    await pool.execute(
        """INSERT INTO jobs (kind, session_id, key, state, due_at, started_at, ended_at)
           VALUES ('tidy', $1, 'k', 'done', now() - interval '5 s', now() - interval '3 s', now())""",
        seeded.session_id,
    )
    await asyncio.sleep(1.1)
    for _ in range(2):
        await durations.catch_up()
    place = BUCKETS.index(30.0)
    assert durations.stages["turn"].counts[place] + durations.stages["turn"].counts[place + 1] == 2
    assert durations.stages["wait"].counts[BUCKETS.index(0.5)] == 2
    assert sum(durations.stages["model"].counts) == 2
    assert durations.stages["job"].counts[BUCKETS.index(5.0)] == 1
    assert durations.stages["job_wait"].counts[BUCKETS.index(2.5)] == 1
    assert 59 < durations.stages["turn"].seconds < 61


async def test_slow_count_is_repeated_less_often(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    now, asked = 100.0, []
    real = RunningSums.read

    async def read(sums: RunningSums, *, whole: bool = False) -> Any:
        nonlocal now
        now += 3 if whole else 0
        asked.append((now, whole))
        return await real(sums, whole=whole)

    monkeypatch.setattr(RunningSums, "read", read)
    scrape = Scrape(Durations(pool), MetricsInsights(pool, timezone="UTC"), RunningSums(pool), lambda: now)
    for wait in (0, 1500, 1490, 10):
        now += wait
        assert (await scrape.count())["sessions"] == {"all": 0}
    assert asked == [(103, True), (1603, False), (3093, False), (3106, True)]


async def test_a_histogram_is_one_for_prometheus_and_no_label_is_an_id(pool: Pool) -> None:
    async with pool.acquire() as connection:
        await seed.a_long_session(connection, turns=12)
    settings = load_settings()
    scrape = Scrape(Durations(pool), MetricsInsights(pool, timezone="UTC"), RunningSums(pool))
    text = await scrape.render(settings, deprecated=True)
    families = {family.name: family for family in text_string_to_metric_families(text)}
    (build,) = families["evertalk_build_info"].samples
    assert (build.value, build.labels["version"]) == (1, read_version())
    for old, new in DEPRECATED.items():
        former, renamed = (families[name.removesuffix("_total")].samples for name in (old, new))
        assert [one.value for one in former] == [one.value for one in renamed]
    stages = families["evertalk_stage_seconds"]
    assert stages.type == "histogram"
    assert len(stages.samples) == 5 * (len(BUCKETS) + 3)
    labels: dict[str, Any] = {}
    for family in families.values():
        for sample in family.samples:
            labels |= dict.fromkeys(sample.labels)
    known = {"state", "kind", "role", "outcome", "stage", "le", "version", "python", "transport"}
    assert labels.keys() <= known
    told = {name if kind != "counter" else name.removesuffix("_total") for name, (kind, _) in METRICS.items()}
    assert families.keys() <= told
