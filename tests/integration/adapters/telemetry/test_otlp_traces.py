"""Spans as an SDK would get them, from a recording tracer: the SDK itself is an extra."""

from __future__ import annotations

import asyncio
import importlib.util
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from structlog.testing import capture_logs

from shared.adapters.models import ModelEntry, open_models
from shared.adapters.models.catalog import Wire
from shared.adapters.models.routing import Models
from shared.adapters.models.token_counter import VocabularyCounter
from shared.adapters.telemetry import otlp_traces
from shared.adapters.telemetry.genai import METRICS, name_provider
from shared.adapters.telemetry.otlp_traces import OpenTelemetryTraces, open_traces
from shared.core.values.errors import ModelUnavailable
from shared.core.values.messages import Message, Text
from shared.ports import ModelReply, ModelRequest, Usage
from shared.runtime import NULL_TRACER, Attribute, ModelCall, SpanName, TraceSpan
from tests.kit.fakes.messages_api.harness import RunningFake
from tests.kit.fakes.otlp_receiver import collecting
from tests.kit.model_makers import asking

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
        self, name: str, *, kind: Any, attributes: Mapping[str, Attribute], record_exception: bool,
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

    def set_status(self, status: Any) -> None:
        self.told["status"] = status.name


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


async def test_model_call_span_belongs_to_its_turn_with_request_id() -> None:
    recorded = Recorded()
    tracer, model = OpenTelemetryTraces(recorded), models(Scripted())
    model.trace(tracer)
    with tracer.span("turn", {"session": 4, "turn": 2}):
        await asyncio.ensure_future(model.reply(REQUEST))
    call, turn = recorded.spans
    assert (call["name"], call["within"], call["evertalk.request_id"]) == ("chat m", "turn", "req_1")
    assert (call["gen_ai.usage.input_tokens"], call["gen_ai.usage.output_tokens"]) == (7, 3)
    assert (call["gen_ai.operation.name"], call["gen_ai.provider.name"]) == ("chat", "evertalk")
    assert (turn["evertalk.session"], turn["evertalk.turn"]) == (4, 2)
    assert "secret" not in str(recorded.spans)
    tracer.close()
    assert recorded.ended


@pytest.mark.control("S36")
async def test_failure_span_names_only_its_kind() -> None:
    recorded = Recorded()
    model = models(Scripted(fails=True))
    model.trace(OpenTelemetryTraces(recorded))
    with pytest.raises(ModelUnavailable):
        await model.reply(REQUEST)
    (span,) = recorded.spans
    assert (span["error.type"], span["status"]) == ("ModelUnavailable", "ERROR")
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
    assert (call["name"], answered["name"], job["name"]) == ("chat m", "turn", "job")
    assert (call["within"], call["trace"]) == (answered["id"], answered["trace"])
    assert (answered["within"], job["within"]) == ("", "")
    assert (call["evertalk.request_id"], call["gen_ai.usage.input_tokens"]) == ("req_1", 7)
    assert answered["evertalk.state"] == "answered"
    assert (job["evertalk.job"], job["error.type"]) == (7, "ModelUnavailable")
    assert call["lasted"] <= answered["lasted"]
    assert "secret" not in str(collector.spans)
    assert not any(span["events"] for span in collector.spans)


def test_unreachable_collector_delays_no_process() -> None:
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


needs_extra = pytest.mark.skipif(
    importlib.util.find_spec("opentelemetry.exporter.otlp.proto.http") is None,
    reason="the extra `traces` is not installed",
)
MODEL = "claude-haiku-5-5"
CLIENT = 3
"""Number of the span kind in OTLP."""


@pytest.mark.parametrize(
    ("server", "wire", "provider"),
    [
        ("api.anthropic.com", "messages", "anthropic"),
        ("api.openai.com", "responses", "openai"),
        ("api.groq.com", "openai", "groq"),
        ("api.mistral.ai", "openai", "mistral_ai"),
        ("acme.openai.azure.com", "openai", "azure.ai.openai"),
        ("generativelanguage.googleapis.com", "openai", "gcp.gemini"),
        ("vortex.ai", "openai", "openai"),
        ("notopenai.com", "messages", "anthropic"),
        ("127.0.0.1", "openai", "openai"),
        ("", "", "evertalk"),
    ],
)
def test_provider_is_named_by_the_conventions(server: str, wire: str, provider: str) -> None:
    assert name_provider(ModelCall(model="m", wire=wire, server=server)) == provider


@needs_extra
@pytest.mark.parametrize("wire", ["messages", "openai"])
async def test_collector_receives_spans_and_metrics_of_model_calls(wire: Wire) -> None:
    with collecting() as collector:
        async with RunningFake(wire=wire) as fake:
            await fake.script([{"match": {"kind": "chat"}, "action": {"text": "my secret answer"}}])
            entry = ModelEntry(name=MODEL, wire=wire, base_url=fake.base_url, key_env="KEY", window=200_000)
            model = open_models(
                api_key=None, base_url=None, entries=(entry,), environ={"KEY": "good-key"}, chat_model=MODEL,
                counter=VocabularyCounter(),
            )  # fmt: skip
            tracer = open_traces(collector.url, service="evertalk-web")
            model.trace(tracer)
            reply = await model.reply(asking("my secret question", model=MODEL))
            await model.close()
            await asyncio.to_thread(tracer.close)
    assert collector.faults == []
    (span,) = collector.spans
    usage = reply.usage
    whole_input = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    provider = {"messages": "anthropic", "openai": "openai"}[wire]
    common = {
        "gen_ai.operation.name": "chat", "gen_ai.provider.name": provider, "gen_ai.request.model": MODEL,
        "gen_ai.response.model": MODEL, "server.address": "127.0.0.1",
        "server.port": urlsplit(fake.base_url).port,
    }  # fmt: skip
    assert span["name"] == f"chat {MODEL}"
    assert (span["kind"], span["failed"]) == (CLIENT, False)
    assert {key: span[key] for key in common} == common
    assert span["gen_ai.usage.input_tokens"] == whole_input > 0
    assert span["gen_ai.usage.output_tokens"] == usage.output_tokens > 0
    assert span["gen_ai.response.finish_reasons"] == ["end_turn"]
    assert 0 < span["gen_ai.response.time_to_first_chunk"] <= span["lasted"] / 1e9
    points = {(point["name"], point.get("gen_ai.token.type")): point for point in collector.points}
    assert {name for name, _ in points} == set(METRICS)
    for point in collector.points:
        unit, _, buckets = METRICS[point["name"]]
        assert (point["unit"], point["bounds"], point["count"]) == (unit, tuple(buckets), 1)
        assert {key: point[key] for key in common} == common
    assert points["gen_ai.client.token.usage", "input"]["sum"] == whole_input
    assert points["gen_ai.client.token.usage", "output"]["sum"] == usage.output_tokens
    first = points["gen_ai.client.operation.time_to_first_chunk", None]["sum"]
    assert first == span["gen_ai.response.time_to_first_chunk"]
    assert first <= points["gen_ai.client.operation.duration", None]["sum"]
    assert "secret" not in str(collector.spans) + str(collector.points)


@needs_extra
async def test_collector_receives_the_kind_of_error_of_a_model_call() -> None:
    with collecting() as collector:
        tracer = open_traces(collector.url, service="evertalk-web")
        model = models(Scripted(fails=True))
        model.trace(tracer)
        with pytest.raises(ModelUnavailable):
            await model.reply(REQUEST)
        await asyncio.to_thread(tracer.close)
    (span,) = collector.spans
    (point,) = collector.points
    assert (span["error.type"], span["failed"]) == ("ModelUnavailable", True)
    assert (point["name"], point["error.type"]) == ("gen_ai.client.operation.duration", "ModelUnavailable")
    assert "secret" not in str(collector.spans) + str(collector.points)


@needs_extra
async def test_tokens_that_were_not_counted_are_not_reported() -> None:
    with collecting() as collector:
        tracer = open_traces(collector.url, service="evertalk-web")
        with tracer.model_call(ModelCall(model="m", wire="")) as call:
            call.note_reply(
                model="m", request_id="", finish_reason="end_turn", input_tokens=0, output_tokens=0,
                cache_read_tokens=0, cache_write_tokens=0, known=False,
            )  # fmt: skip
        await asyncio.to_thread(tracer.close)
    assert [point["name"] for point in collector.points] == ["gen_ai.client.operation.duration"]
    assert "gen_ai.usage.input_tokens" not in collector.spans[0]


@needs_extra
def test_endpoint_without_the_usual_path_receives_traces_only() -> None:
    with capture_logs() as lines:
        tracer = open_traces("http://127.0.0.1:9/traces", service="evertalk-web")
        tracer.close()
    assert [line["event"] for line in lines] == ["model_metrics_disabled"]


def test_document_lists_every_metric_of_model_calls() -> None:
    page = (Path(__file__).resolve().parents[4] / "docs" / "metrics.md").read_text()
    listed = dict(re.findall(r"^\| `(gen_ai\.client\.[a-z_.]+)` \| `(.+?)` \|", page, flags=re.MULTILINE))
    assert listed == {name: unit for name, (unit, _, _) in METRICS.items()}
