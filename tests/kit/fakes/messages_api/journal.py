"""Keeps every request and its cost for tests to read."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass, field

from tests.kit.fakes.messages_api.cache import InputUsage
from tests.kit.fakes.messages_api.shapes import Json

SECRET_HEADERS = frozenset({"authorization", "x-api-key", "cookie"})
MAX_KEPT_BYTES = 192 * 1024 * 1024
"""Most bytes of request bodies that are kept.

Beyond that the oldest bodies are dropped, but not their rows.
"""


@dataclass(slots=True, kw_only=True)
class Record:
    """One received request, with its answer and its cost."""

    id: int
    path: str
    headers: dict[str, str]
    raw: bytes | None
    kind: str = "invalid"
    model: str | None = None
    input_tokens: int = 0
    status: int = 0
    outcome: str = "open"
    """How the request ended: open, answered, refused, or how its stream ended early (cut, stream_error,
    no_message_stop, client_gone).
    """
    error: str | None = None
    usage: InputUsage | None = None
    output_tokens: int = 0
    answer: list[Json] = field(default_factory=list)
    stop_reason: str | None = None
    action: Json = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def as_json(self) -> Json:
        return {
            "id": self.id,
            "path": self.path,
            "headers": self.headers,
            "kind": self.kind,
            "model": self.model,
            "input_tokens": self.input_tokens,
            "status": self.status,
            "outcome": self.outcome,
            "error": self.error,
            "usage": usage_json(self.usage, self.output_tokens) if self.usage else None,
            "answer": self.answer,
            "stop_reason": self.stop_reason,
            "action": self.action,
            "warnings": list(self.warnings),
            "body": _readable(self.raw),
        }


class Journal:
    """The requests that the fake has received."""

    def __init__(self) -> None:
        self._records: deque[Record] = deque()
        self._kept_bytes = 0
        self._bodies: deque[Record] = deque()
        self._next_id = 1

    def reset(self) -> None:
        """Forget all requests.

        Numbering continues, so that `since` never returns a request from before.
        """
        self._records.clear()
        self._bodies.clear()
        self._kept_bytes = 0

    def open(self, path: str, headers: dict[str, str], raw: bytes) -> Record:
        """Record a request, with its secret headers redacted, and return the record."""
        shown = {
            name: "[redacted]" if name.lower() in SECRET_HEADERS else value for name, value in headers.items()
        }
        record = Record(id=self._next_id, path=path, headers=shown, raw=raw)
        self._next_id += 1
        self._records.append(record)
        self._bodies.append(record)
        self._kept_bytes += len(raw)
        while self._kept_bytes > MAX_KEPT_BYTES:
            oldest = self._bodies.popleft()
            self._kept_bytes -= len(oldest.raw or b"")
            oldest.raw = None
        return record

    @property
    def records(self) -> tuple[Record, ...]:
        return tuple(self._records)

    def since(self, number: int) -> list[Json]:
        """Return the requests with an id above `number`."""
        return [record.as_json() for record in self._records if record.id > number]

    def warnings(self) -> list[Json]:
        return [{"id": record.id, "warning": text} for record in self._records for text in record.warnings]

    def totals(self) -> Json:
        """Return the tokens that the provider would bill, in all and by kind of request.

        Every request counts that began to be answered, also if its stream broke off.
        """
        billed = [record for record in self._records if record.usage is not None]
        return {
            **_sum(billed),
            "aborted": sum(record.outcome not in ("answered", "open") for record in billed),
            "by_kind": {
                kind: _sum([r for r in billed if r.kind == kind]) for kind in {r.kind for r in billed}
            },
            "by_model": {
                model: _sum([r for r in billed if r.model == model])
                for model in {str(r.model) for r in billed}
            },
        }


def usage_json(usage: InputUsage, output_tokens: int) -> Json:
    """Return the usage block of an answer."""
    return {
        "input_tokens": usage.fresh,
        "cache_creation_input_tokens": usage.written,
        "cache_read_input_tokens": usage.read,
        "cache_creation": {
            "ephemeral_5m_input_tokens": usage.written_5m,
            "ephemeral_1h_input_tokens": usage.written_1h,
        },
        "output_tokens": output_tokens,
        "service_tier": "standard",
    }


def _sum(records: list[Record]) -> Json:
    used = [record.usage for record in records if record.usage is not None]
    return {
        "requests": len(records),
        "input_tokens": sum(usage.fresh for usage in used),
        "cache_creation_input_tokens": sum(usage.written for usage in used),
        "cache_read_input_tokens": sum(usage.read for usage in used),
        "output_tokens": sum(record.output_tokens for record in records),
    }


def _readable(raw: bytes | None) -> object:
    if raw is None:
        return None
    try:
        return json.loads(raw)
    except ValueError:
        return raw.decode(errors="replace")
