"""Spans as an SDK would get them, from a recording tracer: the SDK itself is an extra."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import pytest

from shared.adapters.models.routing import Models
from shared.adapters.telemetry import otlp_traces
from shared.adapters.telemetry.otlp_traces import OpenTelemetryTraces, open_traces
from shared.core.values.errors import ModelUnavailable
from shared.core.values.messages import Message, Text
from shared.ports import ModelReply, ModelRequest, Usage
from shared.runtime import NULL_TRACER, Attribute, SpanName, TraceSpan
from tests.kit.fakes.otlp_receiver import collecting

_OPEN: ContextVar[str] = ContextVar("open", default="")


@dataclass(slots=True)
class Recorded:
    """What the SDK's tracer is asked for."""

    spans: list[dict[str, Any]] = field(default_factory=list)
    ended: bool = False

    def get_tracer(self, _name: str) -> Recorded:
        return self

    def shutdown(self) -> None:
        self.ended = True

    @contextmanager
    def start_as_current_span(
        self, name: str, *, attributes: Mapping[str, Attribute], record_exception: bool,
        set_status_on_exception: bool,
    ) -> Iterator[Any]:  # fmt: skip
        assert not record_exception
        assert not set_status_on_exception
        span = _Span({"name": name, "within": _OPEN.get(), **attributes})
        token = _OPEN.set(name)
        try:
            yield span
        finally:
            _OPEN.reset(token)
            self.spans.append(span.told)


@dataclass(slots=True)
class _Span:
    told: dict[str, Any]

    def set_attributes(self, attributes: Mapping[str, Attribute]) -> None:
        self.told |= attributes

    def set_attribute(self, name: str, value: Attribute) -> None:
        self.told[name] = value


class Scripted:
    """A model that answers, or fails in words of the person."""

    def __init__(self, fails: bool = False) -> None:
        self.fails = fails

    async def reply(self, request: ModelRequest, *, on_text: Any = None) -> ModelReply:
        if self.fails:
            raise ModelUnavailable("they said: my secret")
        return ModelReply(
            blocks=(Text(text="my secret"),), usage=Usage(input_tokens=7, output_tokens=3),
            stop_reason="end_turn",
            model="m", request_id="req_1",
        )  # fmt: skip


def models(scripted: Scripted) -> Models:
    return Models(
        chat="m", summary="m", models={}, fallbacks={}, providers=(), usual=lambda _: scripted  # type: ignore[arg-type,return-value]
    )  # fmt: skip


REQUEST = ModelRequest(
    model="m",
    system=(),
    messages=(Message(role="user", blocks=(Text(text="my secret"),)),),
    tools=(),
    max_output_tokens=9,
)


async def test_a_model_call_is_a_part_of_its_turn_and_has_the_providers_request_id() -> None:
    recorded = Recorded()
    tracer, model = OpenTelemetryTraces(recorded), models(Scripted())
    model.trace(tracer)
    with tracer.span("turn", {"session": 4, "turn": 2}):
        await asyncio.ensure_future(model.reply(REQUEST))
    call, turn = recorded.spans
    assert (call["name"], call["within"], call["evertalk.request_id"]) == ("model call", "turn", "req_1")
    assert (call["evertalk.input_tokens"], call["evertalk.output_tokens"]) == (7, 3)
    assert (turn["evertalk.session"], turn["evertalk.turn"]) == (4, 2)
    assert "secret" not in str(recorded.spans)
    tracer.close()
    assert recorded.ended


@pytest.mark.control("S36")
async def test_a_failure_is_told_by_its_kind_alone() -> None:
    recorded = Recorded()
    model = models(Scripted(fails=True))
    model.trace(OpenTelemetryTraces(recorded))
    with pytest.raises(ModelUnavailable):
        await model.reply(REQUEST)
    (span,) = recorded.spans
    assert span["error.type"] == "ModelUnavailable"
    assert "secret" not in str(span)


async def test_without_an_endpoint_nothing_is_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def never(name: str) -> Any:
        raise AssertionError(name)

    monkeypatch.setattr(otlp_traces, "import_module", never)
    assert open_traces(None, service="evertalk-web") is NULL_TRACER
    with NULL_TRACER.span("job", {"job": 1}) as span, NULL_TRACER.span("turn", {}) as other:
        span.set_attributes(state="done")
        assert span is other


def test_without_the_packages_nothing_is_sent_and_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(otlp_traces, "import_module", missing)
    assert open_traces("http://127.0.0.1:4318/v1/traces", service="evertalk-web") is NULL_TRACER


def test_the_port_is_kept_by_both() -> None:
    def span_of(tracer: Any) -> AbstractContextManager[TraceSpan]:
        name: SpanName = "delivery"
        made: AbstractContextManager[TraceSpan] = tracer.span(name, {"turn": 1})
        return made

    for tracer in (NULL_TRACER, OpenTelemetryTraces(Recorded())):
        with span_of(tracer) as span:
            span.set_attributes(brought=True)


def test_a_collector_gets_what_the_extra_sends() -> None:
    pytest.importorskip(
        "opentelemetry.exporter.otlp.proto.http", reason="the extra `traces` is not installed"
    )
    with collecting() as collector:
        tracer = open_traces(collector.url, service="evertalk-web")
        assert isinstance(tracer, OpenTelemetryTraces)
        model = models(Scripted())
        model.trace(tracer)

        async def turn() -> None:
            with tracer.span("turn", {"session": 4, "turn": 2}) as span:
                await asyncio.ensure_future(model.reply(REQUEST))
                span.set_attributes(state="answered")

        asyncio.run(turn())
        with pytest.raises(ModelUnavailable), tracer.span("job", {"job": 7}):
            raise ModelUnavailable("they said: my secret")
        tracer.close()
        assert collector.faults == []
        call, answered, job = collector.spans
    assert {span["service"] for span in collector.spans} == {"evertalk-web"}
    assert (call["name"], answered["name"], job["name"]) == ("model call", "turn", "job")
    assert (call["within"], call["trace"]) == (answered["id"], answered["trace"])
    assert (answered["within"], job["within"]) == ("", "")
    assert (call["evertalk.request_id"], call["evertalk.input_tokens"]) == ("req_1", 7)
    assert answered["evertalk.state"] == "answered"
    assert (job["evertalk.job"], job["error.type"]) == (7, "ModelUnavailable")
    assert call["lasted"] <= answered["lasted"]
    assert "secret" not in str(collector.spans)
    assert not any(span["events"] for span in collector.spans)


def test_a_collector_that_is_away_holds_nobody_up() -> None:
    pytest.importorskip(
        "opentelemetry.exporter.otlp.proto.http", reason="the extra `traces` is not installed"
    )
    with collecting() as collector:
        collector.away = 1
        tracer = open_traces(collector.url, service="evertalk-worker")
        with tracer.span("job", {"job": 1}) as span:
            span.set_attributes(state="done")
        tracer.close()
    assert [span["evertalk.job"] for span in collector.spans] in ([1], [])
    gone = open_traces(collector.url, service="evertalk-worker")
    with gone.span("job", {"job": 2}):
        pass
    gone.close()
