"""A fake OpenTelemetry collector on loopback: it takes spans and metrics by OTLP over HTTP and decodes
them.
"""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from typing import Any

PATH = "/v1/traces"
METRICS_PATH = "/v1/metrics"
MOST_BYTES = 4 * 1024 * 1024


@dataclass(slots=True)
class Collector:
    """The collected telemetry: `spans` in order of arrival, and `faults`, the requests that a collector would
    refuse.
    """

    url: str = ""
    away: int = 0
    """Number of requests that are answered 503 before the next is accepted."""
    spans: list[dict[str, Any]] = field(default_factory=list)
    points: list[dict[str, Any]] = field(default_factory=list)
    """Histograms as last received, each with name, unit, bounds, count, sum and attributes."""
    faults: list[str] = field(default_factory=list)

    def take(self, path: str, headers: Any, body: bytes) -> int:
        if self.away:
            self.away -= 1
            return 503
        if path not in (PATH, METRICS_PATH) or headers.get("Content-Type") != "application/x-protobuf":
            self.faults.append(f"{path} {headers.get('Content-Type')}")
            return 415
        unpacked = gzip.decompress(body) if headers.get("Content-Encoding") == "gzip" else body
        if path == PATH:
            self.spans += _spans(unpacked)
        else:
            self.points = _points(unpacked)
        return 200


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        timeout = 10

        def do_POST(self) -> None:
            length = min(int(self.headers.get("Content-Length", 0)), MOST_BYTES)
            status = collector.take(self.path, self.headers, self.rfile.read(length))
            self.send_response(status)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            return None

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    collector.url = f"http://127.0.0.1:{server.server_port}{PATH}"
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    try:
        yield collector
    finally:
        server.shutdown()
        serving.join(5)
        server.server_close()


def _spans(body: bytes) -> list[dict[str, Any]]:
    """Return the spans of a request.

    The message types come with the exporter's package `opentelemetry-proto`.
    """
    wire = import_module("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    request = wire.ExportTraceServiceRequest()
    request.ParseFromString(body)
    return [
        _told(span, _named(resource.resource.attributes).get("service.name"))
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def _points(body: bytes) -> list[dict[str, Any]]:
    wire = import_module("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2")
    request = wire.ExportMetricsServiceRequest()
    request.ParseFromString(body)
    return [
        {
            "name": metric.name, "unit": metric.unit, "count": point.count, "sum": point.sum,
            "bounds": tuple(point.explicit_bounds), **_named(point.attributes),
        }
        for resource in request.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.histogram.data_points
    ]  # fmt: skip


def _told(span: Any, service: Any) -> dict[str, Any]:
    return {
        "service": service, "name": span.name, "id": span.span_id.hex(),
        "within": span.parent_span_id.hex(), "trace": span.trace_id.hex(),
        "lasted": span.end_time_unix_nano - span.start_time_unix_nano,
        "events": len(span.events), "status": span.status.message, "failed": span.status.code == 2,
        "kind": span.kind, **_named(span.attributes),
    }  # fmt: skip


def _named(attributes: Any) -> dict[str, Any]:
    return {one.key: _value(one.value) for one in attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    found = getattr(value, kind)
    return [_value(one) for one in found.values] if kind == "array_value" else found
