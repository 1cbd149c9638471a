"""`/metrics` in Prometheus' text form, counted from Postgres at most every ten seconds."""

from __future__ import annotations

import asyncio
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from shared.adapters.postgres.dashboard.metrics_queries import BUCKETS, Durations, Histogram, MetricsInsights
from shared.adapters.postgres.turns.counters import RunningSums, Sums
from shared.config.settings import Settings
from shared.core.ops.alerts import KINDS
from shared.runtime import read_version
from web.dashboard.access import AuthedRequest
from web.rest.operation import OperationRouter, Reply

router = OperationRouter()
KEEP_SECONDS = 10.0
"""Seconds for which counted samples are reused by later scrapes."""
RECOUNT_FACTOR = 1000
"""Multiple of the duration of a full count after which sums are counted again, for erased rows; new rows are
added meanwhile.
"""
_TOKENS = ("input", "output", "cache_read", "cache_write")
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Content type of Prometheus' text format."""

Sample = tuple[Mapping[str, str], float]
"""Labels and value of one sample; the label `""` is a suffix of the series' name."""
_REDIS_ERRORS = ("publish", "enqueue")
_TRANSPORTS = ("websocket", "event_stream", "long_poll")
_ALERTS = tuple(kind for kind in KINDS if kind != "test")


DEPRECATED: Mapping[str, str] = {
    "context_summary_count": "evertalk_summaries_total",
    "context_prune_count": "evertalk_prunes_total",
    "context_overflow_reject_count": "evertalk_overflow_rejects_total",
    "avg_prompt_tokens_per_turn": "evertalk_prompt_tokens_per_call",
}
"""Names of 0.1, which do not follow Prometheus' conventions, and the names that replace them."""
REMOVED_IN = "0.3.0"
"""Version without the deprecated names."""

_SERIES: Mapping[str, tuple[str, str]] = {
    "evertalk_build_info": ("gauge", "Always 1; the labels name the version of Evertalk and of Python."),
    "evertalk_summaries_total": ("counter", "Summaries that replaced older turns."),
    "evertalk_prunes_total": (
        "counter", "Turns that shortened a batch of old tool results.",
    ),
    "evertalk_overflow_rejects_total": (
        "counter", "Model calls refused because the parts that cannot be dropped did not fit.",
    ),
    "evertalk_prompt_tokens_per_call": (
        "gauge", "Mean prompt tokens of a model call, reported or estimated.",
    ),
    "evertalk_sessions": ("gauge", "Sessions."),
    "evertalk_sessions_unanswered": ("gauge", "Sessions with a message that waits for an answer."),
    "evertalk_turns": ("gauge", "Turns by state."),
    "evertalk_stage_seconds": (
        "histogram", "Duration of turns and jobs, by stage, since this process started collecting.",
    ),
    "evertalk_tokens_total": ("counter", "Tokens by kind, as counted by the providers."),
    "evertalk_cost_dollars_total": ("counter", "Known cost."),
    "evertalk_cost_unknown_calls_total": ("counter", "Model calls of unknown price."),
    "evertalk_spent_today_dollars": ("gauge", "Known cost since midnight in EVERTALK_TIMEZONE."),
    "evertalk_reserved_dollars": ("gauge", "Money reserved for running model calls."),
    "evertalk_cap_dollars": ("gauge", "The daily spending cap."),
    "evertalk_tool_calls": ("gauge", "Tool calls by state."),
    "evertalk_jobs": ("gauge", "Jobs by state."),
    "evertalk_jobs_failing": ("gauge", "Jobs that will be retried after an error."),
    "evertalk_oldest_due_job_seconds": ("gauge", "Waiting time of the oldest due job."),
    "evertalk_duty_runs_total": ("counter", "Runs of the workers' duties, by duty."),
    "evertalk_duty_failed_runs_total": ("counter", "Failed runs of the workers' duties, by duty."),
    "evertalk_duty_duration_seconds": ("gauge", "Duration of the last run, by duty."),
    "evertalk_duty_success_age_seconds": ("gauge", "Seconds since the last successful run, by duty."),
    "evertalk_processes": ("gauge", "Running processes by role."),
    "evertalk_sockets": ("gauge", "Open client connections, by kind."),
    "evertalk_chat_connections": ("gauge", "Open connections of chat pages, by transport."),
    "evertalk_redis_errors": (
        "gauge", "Failed Redis operations since process start, by kind.",
    ),
    "evertalk_breakers_open": ("gauge", "Open circuit breakers, by role."),
    "evertalk_accounts_refused": ("gauge", "Providers that refuse the account, by role."),
    "evertalk_deliveries": ("gauge", "Message parts whose delivery is not confirmed, by state."),
    "evertalk_updates_waiting": ("gauge", "Stored Telegram updates that wait to be handled."),
    "evertalk_handovers": ("gauge", "Conversations that wait for an operator or are handled by one."),
    "evertalk_alerts_open": ("gauge", "Open alerts, by kind."),
    "evertalk_flushes": ("gauge", "Memory flushes by outcome."),
    "evertalk_summaries_undone": ("gauge", "Summaries that were undone."),
}  # fmt: skip
METRICS: Mapping[str, tuple[str, str]] = {
    **_SERIES,
    **{
        old: (_SERIES[new][0], f"Deprecated, removed in {REMOVED_IN}: use {new}.")
        for old, new in DEPRECATED.items()
    },
}
"""Kind and description of every series; no id is a label."""


@dataclass(slots=True)
class Scrape:
    """State that one process keeps between scrapes: cached samples, and the time of the next full count."""

    durations: Durations
    gauges: MetricsInsights
    sums: RunningSums
    clock: Callable[[], float] = time.monotonic
    _due: float = 0.0
    _kept: tuple[float, dict[str, list[Sample]]] | None = None
    _one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def render(self, settings: Settings, *, deprecated: bool = False) -> str:
        """Return the metrics in the text format, at most `KEEP_SECONDS` old; one call counts at a time.

        `deprecated` adds the former names. Raises StorageUnavailable.
        """
        async with self._one_at_a_time:
            if self._kept is None or self.clock() - self._kept[0] >= KEEP_SECONDS:
                self._kept = (self.clock(), await _collect_samples(settings, self))
            samples = self._kept[1]
        return render_exposition(add_deprecated_names(samples) if deprecated else samples)

    async def count(self) -> Mapping[str, Sums]:
        """Return the running sums by subject; the caller must prevent two counts at a time.

        Usually only rows that are new since the last call are read. A full count, which notices erased rows,
        runs rarely enough to take at most one `RECOUNT_FACTOR`-th of the time.
        """
        began = self.clock()
        whole = began >= self._due
        found = await self.sums.read(whole=whole)
        if whole:
            self._due = began + (self.clock() - began) * RECOUNT_FACTOR
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsHandlers:
    """Handler of the metrics for Prometheus."""

    settings: Settings
    scrape: Scrape

    @router.page("GET /metrics", scraper=True)
    async def serve_metrics(self, authed: AuthedRequest) -> Reply:
        deprecated = authed.request.query.get("names") == "deprecated"
        text = await self.scrape.render(self.settings, deprecated=deprecated)
        return web.Response(body=text.encode(), headers={"Content-Type": CONTENT_TYPE})


async def _collect_samples(settings: Settings, scrape: Scrape) -> dict[str, list[Sample]]:
    await scrape.durations.catch_up()
    counted, now = await scrape.count(), await scrape.gauges.load_gauges()
    return {
        **counter_samples(counted), **gauge_samples(now),
        "evertalk_build_info": [({"version": read_version(), "python": platform.python_version()}, 1)],
        "evertalk_jobs": _by("state", _jobs(counted, now)),
        "evertalk_cap_dollars": _one(float(settings.cap_total_per_day_usd)),
        "evertalk_stage_seconds": histogram_samples(scrape.durations.stages),
    }  # fmt: skip


def add_deprecated_names(samples: Mapping[str, list[Sample]]) -> dict[str, list[Sample]]:
    """Return the samples with each renamed series also under its former name."""
    return {**samples, **{old: samples[new] for old, new in DEPRECATED.items() if new in samples}}


def _jobs(counted: Mapping[str, Sums], now: Mapping[str, Any]) -> dict[str, float]:
    """Done is every other one: those that are not, an index knows."""
    states = {**now["jobs"], "dead": now["jobs_dead"]}
    return {**states, "done": max(0, counted["jobs"]["all"] - sum(states.values()))}


def counter_samples(counted: Mapping[str, Sums]) -> dict[str, list[Sample]]:
    """Return samples by series from the running sums, as `Scrape.count` returns them."""
    calls, spend = counted["calls"], counted["spend"]
    return {
        "evertalk_summaries_total": _one(counted["compactions"]["summaries"]),
        "evertalk_prunes_total": _one(calls["prunes"]),
        "evertalk_overflow_rejects_total": _one(calls["overflows"]),
        "evertalk_prompt_tokens_per_call": _one(_average(calls)),
        "evertalk_sessions": _one(counted["sessions"]["all"]),
        "evertalk_turns": _by("state", _some(counted["turns"])),
        "evertalk_tokens_total": _by("kind", {kind: spend[f"{kind}_tokens"] for kind in _TOKENS}),
        "evertalk_cost_dollars_total": _one(spend["cost_micro"] / 1e6),
        "evertalk_cost_unknown_calls_total": _one(spend["cost_unknown_calls"]),
        "evertalk_tool_calls": _by("state", _some(counted["steps"])),
        "evertalk_flushes": _by("outcome", _some(counted["flushes"])),
    }


def _average(calls: Sums) -> float | None:
    return calls["prompt_tokens"] / calls["prompts"] if calls["prompts"] else None


def _some(sums: Sums) -> dict[str, float]:
    return {name: value for name, value in sums.items() if value}


def gauge_samples(gauges: Mapping[str, Any]) -> dict[str, list[Sample]]:
    """Return samples by series from the current state, as `MetricsInsights.load_gauges` returns it."""
    screens = gauges["screens"]
    return {
        "evertalk_sessions_unanswered": _one(gauges["unanswered"]),
        "evertalk_spent_today_dollars": _one(gauges["spent_today_micro"] / 1e6),
        "evertalk_reserved_dollars": _one(gauges["reserved_micro"] / 1e6),
        "evertalk_processes": _by("role", gauges["workers"]),
        "evertalk_handovers": _by("state", gauges["handovers"]),
        "evertalk_summaries_undone": _one(gauges["undone"]),
        "evertalk_jobs_failing": _one(gauges["jobs_failing"]),
        "evertalk_oldest_due_job_seconds": _one(gauges["oldest_job_seconds"] or 0.0),
        "evertalk_duty_runs_total": _by_duty(gauges, "runs"),
        "evertalk_duty_failed_runs_total": _by_duty(gauges, "failed_runs"),
        "evertalk_duty_duration_seconds": _by_duty(gauges, "duration_seconds"),
        "evertalk_duty_success_age_seconds": _by_duty(gauges, "success_age_seconds"),
        "evertalk_deliveries": _by("state", gauges["deliveries"] | gauges["doubts"]),
        "evertalk_updates_waiting": _one(gauges["updates_waiting"]),
        "evertalk_sockets": _by("kind", {kind: screens.get(kind, 0) for kind in ("chat", "dashboard")}),
        "evertalk_chat_connections": _by("transport", {kind: screens.get(kind, 0) for kind in _TRANSPORTS}),
        "evertalk_redis_errors": _by("kind", dict.fromkeys(_REDIS_ERRORS, 0) | gauges["redis_errors"]),
        "evertalk_breakers_open": _by("role", {role: of["open"] for role, of in gauges["breakers"].items()}),
        "evertalk_accounts_refused": _by(
            "role", {role: of["refused"] for role, of in gauges["breakers"].items()}
        ),
        "evertalk_alerts_open": _by("kind", dict.fromkeys(_ALERTS, 0) | gauges["alerts"]),
    }


def _by_duty(gauges: Mapping[str, Any], value: str) -> list[Sample]:
    return _by("duty", {one["name"]: one[value] for one in gauges["duties"] if one[value] is not None})


def histogram_samples(stages: Mapping[str, Histogram]) -> list[Sample]:
    """Return the samples of histograms with cumulative buckets; label `""` is the suffix of the name."""
    samples: list[Sample] = []
    for stage, histogram in stages.items():
        so_far = 0
        for edge, count in zip((*map(_number, BUCKETS), "+Inf"), histogram.counts, strict=True):
            so_far += count
            samples.append(({"": "_bucket", "stage": stage, "le": edge}, so_far))
        samples += [
            ({"": "_sum", "stage": stage}, histogram.seconds),
            ({"": "_count", "stage": stage}, so_far),
        ]
    return samples


def render_exposition(samples: Mapping[str, list[Sample]]) -> str:
    """Return samples in the text format of Prometheus, without series of unknown value."""
    lines: list[str] = []
    for name, (kind, words) in METRICS.items():
        if told := samples.get(name):
            lines.extend((f"# HELP {name} {words}", f"# TYPE {name} {kind}"))
            lines.extend(
                f"{name}{labels.get('', '')}{_labels(labels)} {value:.15g}" for labels, value in told
            )
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    return f"{value:g}"


def _one(value: float | None) -> list[Sample]:
    return [] if value is None else [({}, value)]


def _by(label: str, values: Mapping[str, float]) -> list[Sample]:
    """Return one sample per value; an empty key stands for the total."""
    return [({label: key} if key else {}, value) for key, value in sorted(values.items())]


def _labels(labels: Mapping[str, str]) -> str:
    named = {key: value for key, value in labels.items() if key}
    if not named:
        return ""
    escaped = {
        key: value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        for key, value in named.items()
    }
    return "{" + ",".join(f'{key}="{value}"' for key, value in escaped.items()) + "}"
