"""Sending of traces and metrics to a collector by OTLP over HTTP.

Its packages are the extra `traces`, imported late.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from typing import Any

import structlog

from shared.adapters.telemetry.genai import METRICS, OPERATION, build_common_attributes
from shared.runtime import (
    NULL_TRACER,
    Attribute,
    ModelCall,
    ModelCallSpan,
    SpanName,
    Tracer,
    TraceSpan,
    read_version,
)

log = structlog.get_logger(__name__)

SEND_SECONDS = 5
"""Maximum seconds for sending one batch to the collector."""
METRICS_SECONDS = 30
"""Seconds between two exports of the metrics."""
PREFIX = "evertalk."
"""Prefix of the names of our own span attributes."""
TRACES_PATH, METRICS_PATH = "/v1/traces", "/v1/metrics"
"""Paths at a collector for traces and for metrics."""


def open_traces(endpoint: str | None, *, service: str) -> Tracer:
    """Return a tracer that sends to the endpoint; one that sends nothing without endpoint or packages.

    Missing packages are logged.
    """
    if not endpoint:
        return NULL_TRACER
    try:
        resources = import_module("opentelemetry.sdk.resources")
        about = {"service.name": service, "service.version": read_version()}
        resource = resources.Resource.create(about)
        return OpenTelemetryTraces(_open_spans(endpoint, resource), _open_metrics(endpoint, resource))
    except ImportError as error:
        log.warning("traces_disabled", reason=str(error), advice="run ./evertalk install traces")
        return NULL_TRACER


def _open_spans(endpoint: str, resource: Any) -> Any:
    trace = import_module("opentelemetry.sdk.trace")
    export = import_module("opentelemetry.sdk.trace.export")
    otlp = import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    provider = trace.TracerProvider(resource=resource)
    exporter = otlp.OTLPSpanExporter(endpoint=endpoint, timeout=SEND_SECONDS)
    provider.add_span_processor(export.BatchSpanProcessor(exporter))
    return provider


def _open_metrics(endpoint: str, resource: Any) -> Any:
    """Return the exporter of metrics; None if the endpoint's path does not end with `/v1/traces`."""
    if not endpoint.rstrip("/").endswith(TRACES_PATH):
        log.info("model_metrics_disabled", reason=f"the path of the endpoint does not end with {TRACES_PATH}")
        return None
    metrics = import_module("opentelemetry.sdk.metrics")
    export = import_module("opentelemetry.sdk.metrics.export")
    otlp = import_module("opentelemetry.exporter.otlp.proto.http.metric_exporter")
    url = endpoint.rstrip("/").removesuffix(TRACES_PATH) + METRICS_PATH
    exporter = otlp.OTLPMetricExporter(endpoint=url, timeout=SEND_SECONDS)
    reader = export.PeriodicExportingMetricReader(exporter, export_interval_millis=METRICS_SECONDS * 1000)
    return metrics.MeterProvider(metric_readers=[reader], resource=resource)


class OpenTelemetryTraces:
    """Tracer with OpenTelemetry's SDK, which sends spans and metrics in its own threads."""

    def __init__(
        self, spans: Any, metrics: Any = None, *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """Wrap a TracerProvider, and a MeterProvider or None, with which no metrics are recorded."""
        self._spans = spans
        self._metrics = metrics
        self._tracer = spans.get_tracer("evertalk")
        self._clock = clock
        self._histograms: Mapping[str, Any] = {}
        if metrics is not None:
            meter = metrics.get_meter("evertalk")
            self._histograms = {
                name: meter.create_histogram(
                    name, unit=unit, description=words, explicit_bucket_boundaries_advisory=list(buckets)
                )
                for name, (unit, words, buckets) in METRICS.items()
            }

    def span(self, name: SpanName, attributes: Mapping[str, Attribute]) -> AbstractContextManager[TraceSpan]:
        """Open a span around the block; an exception marks it with the exception's class."""
        return self._span(name, attributes)

    @contextmanager
    def _span(self, name: SpanName, attributes: Mapping[str, Attribute]) -> Iterator[TraceSpan]:
        with self._open(name, _convert_attributes(attributes)) as span:
            yield _Noted(span)

    def model_call(self, call: ModelCall) -> AbstractContextManager[ModelCallSpan]:
        """Open a span of a model call around the block, and record its durations and tokens."""
        return self._model_call(call)

    @contextmanager
    def _model_call(self, call: ModelCall) -> Iterator[ModelCallSpan]:
        common = build_common_attributes(call)
        attributes = {**common, "gen_ai.request.max_tokens": call.max_tokens, "gen_ai.request.stream": True}
        kind = "CLIENT" if call.server else "INTERNAL"
        with self._open(f"{OPERATION} {call.model}", attributes, kind=kind) as span:
            noted = _NotedCall(span, common, record=self._record, clock=self._clock)
            try:
                yield noted
            except BaseException as error:
                noted.end(error=type(error).__name__)
                raise
            noted.end()

    @contextmanager
    def _open(
        self, name: str, attributes: Mapping[str, Attribute], *, kind: str = "INTERNAL"
    ) -> Iterator[Any]:
        # The text of an exception may contain what a person wrote; only its class is recorded.
        api = import_module("opentelemetry.trace")
        with self._tracer.start_as_current_span(
            name,
            kind=api.SpanKind[kind],
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except BaseException as error:
                span.set_attribute("error.type", type(error).__name__)
                span.set_status(api.StatusCode.ERROR)
                raise

    def _record(self, name: str, value: float, attributes: Mapping[str, Attribute]) -> None:
        if (histogram := self._histograms.get(name)) is not None:
            histogram.record(value, attributes=attributes)

    def close(self) -> None:
        """Send what is waiting and end the SDK's threads; blocks."""
        self._spans.shutdown()
        if self._metrics is not None:
            self._metrics.shutdown(timeout_millis=SEND_SECONDS * 1000)


class _Noted:
    def __init__(self, span: Any) -> None:
        self._span = span

    def set_attributes(self, **attributes: Attribute) -> None:
        self._span.set_attributes(_convert_attributes(attributes))


class _NotedCall:
    """A model call: attributes of its span, and its values for the histograms."""

    def __init__(
        self,
        span: Any,
        common: Mapping[str, Attribute],
        *,
        record: Callable[[str, float, Mapping[str, Attribute]], None],
        clock: Callable[[], float],
    ) -> None:
        self._span = span
        self._common = dict(common)
        self._record = record
        self._clock = clock
        self._began = clock()
        self._first_chunk_seconds: float | None = None

    def note_first_chunk(self) -> None:
        """Record the seconds until the first chunk; later calls have no effect."""
        if self._first_chunk_seconds is None:
            self._first_chunk_seconds = self._clock() - self._began
            self._span.set_attribute("gen_ai.response.time_to_first_chunk", self._first_chunk_seconds)

    def note_reply(
        self, *, model: str, request_id: str, finish_reason: str, input_tokens: int, output_tokens: int,
        cache_read_tokens: int, cache_write_tokens: int, known: bool,
    ) -> None:  # fmt: skip
        self._common["gen_ai.response.model"] = model
        self._span.set_attributes(
            {
                "gen_ai.response.model": model,
                "gen_ai.response.finish_reasons": [finish_reason],
                f"{PREFIX}request_id": request_id,
            }
        )
        if not known:
            return
        whole_input = input_tokens + cache_read_tokens + cache_write_tokens
        self._span.set_attributes(
            {
                "gen_ai.usage.input_tokens": whole_input,
                "gen_ai.usage.output_tokens": output_tokens,
                "gen_ai.usage.cache_read.input_tokens": cache_read_tokens,
                "gen_ai.usage.cache_creation.input_tokens": cache_write_tokens,
            }
        )
        for kind, tokens in (("input", whole_input), ("output", output_tokens)):
            attributes = {**self._common, "gen_ai.token.type": kind}
            self._record("gen_ai.client.token.usage", tokens, attributes)

    def end(self, *, error: str = "") -> None:
        """Record the call's duration and its time to the first chunk in the histograms; the span is ended
        elsewhere.

        `error` is the class of the exception that ended the call, "" for a success.
        """
        attributes = {**self._common, "error.type": error} if error else self._common
        self._record("gen_ai.client.operation.duration", self._clock() - self._began, attributes)
        if self._first_chunk_seconds is not None:
            self._record(
                "gen_ai.client.operation.time_to_first_chunk", self._first_chunk_seconds, self._common
            )


def _convert_attributes(attributes: Mapping[str, Attribute]) -> dict[str, Attribute]:
    return {f"{PREFIX}{name}": value for name, value in attributes.items()}
