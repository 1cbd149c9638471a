"""`/metrics` in Prometheus' text form, counted from Postgres at most every ten seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import web

from web.dashboard.access import Handler, Visit

KEEP_SECONDS = 10.0
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Sample = tuple[Mapping[str, str], float]


def metrics_handler(clock: Callable[[], float] = time.monotonic) -> Handler:
    kept: tuple[float, str] | None = None

    async def metrics(visit: Visit) -> web.StreamResponse:
        nonlocal kept
        if kept is None or clock() - kept[0] >= KEEP_SECONDS:
            kept = (clock(), exposition(await visit.desk.insights.counters()))
        return web.Response(body=kept[1].encode(), headers={"Content-Type": CONTENT_TYPE})

    return metrics


def exposition(counters: Mapping[str, Any]) -> str:
    """What is unknown is left out: an absent series is honest, a zero is not."""
    lines: list[str] = []

    def tell(name: str, kind: str, words: str, samples: list[Sample]) -> None:
        if samples:
            lines.extend((f"# HELP {name} {words}", f"# TYPE {name} {kind}"))
            lines.extend(f"{name}{_labels(labels)} {value:.15g}" for labels, value in samples)

    tell(
        "context_summary_count",
        "counter",
        "Summaries that took the place of older turns.",
        _one(counters["summaries"]),
    )
    tell(
        "context_prune_count",
        "counter",
        "Turns that began by taking a batch of old tool results to be shortened.",
        _one(counters["prunes"]),
    )
    tell(
        "context_overflow_reject_count",
        "counter",
        "Model calls refused because what may not be dropped did not fit.",
        _one(counters["overflows"]),
    )
    tell(
        "avg_prompt_tokens_per_turn",
        "gauge",
        "Mean prompt of a model call, as reported or else estimated.",
        _one(counters["avg_prompt"]),
    )
    tell("evertalk_sessions", "gauge", "Sessions.", _one(counters["sessions"]))
    tell("evertalk_turns", "gauge", "Turns by state.", _by("state", counters["turns"]))
    tell(
        "evertalk_tokens_total",
        "counter",
        "Tokens by kind, as providers counted.",
        _by("kind", counters["tokens"]),
    )
    tell("evertalk_cost_dollars_total", "counter", "Known cost.", _one(counters["cost_micro"] / 1e6))
    tell(
        "evertalk_cost_unknown_calls_total",
        "counter",
        "Calls of unknown price.",
        _one(counters["cost_unknown_calls"]),
    )
    tell("evertalk_jobs", "gauge", "Jobs by state.", _by("state", counters["jobs"]))
    tell("evertalk_processes", "gauge", "Living processes by role.", _by("role", counters["workers"]))
    tell("evertalk_flushes", "gauge", "Memory flushes by outcome.", _by("outcome", counters["flushes"]))
    tell("evertalk_summaries_undone", "gauge", "Summaries that were undone.", _one(counters["undone"]))
    return "\n".join(lines) + "\n"


def _one(value: float | None) -> list[Sample]:
    return [] if value is None else [({}, value)]


def _by(label: str, values: Mapping[str, float]) -> list[Sample]:
    return [({label: key}, value) for key, value in sorted(values.items())]


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    escaped = {
        key: value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        for key, value in labels.items()
    }
    return "{" + ",".join(f'{key}="{value}"' for key, value in escaped.items()) + "}"
