"""Traces to a collector by OTLP over HTTP; the packages are the extra `traces`, imported late."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from typing import Any

import structlog

from shared.runtime import NULL_TRACER, Attribute, SpanName, Tracer, TraceSpan

log = structlog.get_logger(__name__)

SEND_SECONDS = 5
PREFIX = "evertalk."


def open_traces(endpoint: str | None, *, service: str) -> Tracer:
    """Nothing without an endpoint; without the packages nothing either, and a line in the log."""
    if not endpoint:
        return NULL_TRACER
    try:
        trace = import_module("opentelemetry.sdk.trace")
        export = import_module("opentelemetry.sdk.trace.export")
        resources = import_module("opentelemetry.sdk.resources")
        otlp = import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    except ImportError as error:
        log.warning("traces_not_sent", reason=str(error), advice="run ./evertalk install traces")
        return NULL_TRACER
    provider = trace.TracerProvider(resource=resources.Resource.create({"service.name": service}))
    exporter = otlp.OTLPSpanExporter(endpoint=endpoint, timeout=SEND_SECONDS)
    provider.add_span_processor(export.BatchSpanProcessor(exporter))
    return OpenTelemetryTraces(provider)


class OpenTelemetryTraces:
    """`provider` is a TracerProvider of the SDK; it sends in a thread of its own."""

    def __init__(self, provider: Any) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("evertalk")

    def span(self, name: SpanName, attributes: Mapping[str, Attribute]) -> AbstractContextManager[TraceSpan]:
        return self._span(name, attributes)

    @contextmanager
    def _span(self, name: SpanName, attributes: Mapping[str, Attribute]) -> Iterator[TraceSpan]:
        # The text of an error may hold what somebody said: only its kind is told.
        with self._tracer.start_as_current_span(
            name,
            attributes=_convert_attributes(attributes),
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield _Noted(span)
            except BaseException as error:
                span.set_attribute("error.type", type(error).__name__)
                raise

    def close(self) -> None:
        self._provider.shutdown()


class _Noted:
    def __init__(self, span: Any) -> None:
        self._span = span

    def set_attributes(self, **attributes: Attribute) -> None:
        self._span.set_attributes(_convert_attributes(attributes))


def _convert_attributes(attributes: Mapping[str, Attribute]) -> dict[str, Attribute]:
    return {f"{PREFIX}{name}": value for name, value in attributes.items()}
