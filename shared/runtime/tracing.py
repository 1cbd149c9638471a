"""Spans of what takes time: turns, model calls, jobs, deliveries; ids and numbers, never what was said."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Literal, Protocol

SpanName = Literal["turn", "model call", "job", "delivery"]
Attribute = str | int | float | bool


class TraceSpan(Protocol):
    def set_attributes(self, **attributes: Attribute) -> None: ...


class Tracer(Protocol):
    def span(self, name: SpanName, attributes: Mapping[str, Attribute]) -> AbstractContextManager[TraceSpan]:
        """Begins with the block and ends with it, as failed when it raises; within another it is a part."""
        ...

    def close(self) -> None:
        """Sends what has not been sent; may take seconds."""
        ...


class _NoSpan:
    __slots__ = ()

    def set_attributes(self, **attributes: Attribute) -> None:
        return None


class NullTracer:
    """What every process has that sends no traces: nothing is kept, nothing is made."""

    __slots__ = ()
    _block = nullcontext(_NoSpan())

    def span(self, name: SpanName, attributes: Mapping[str, Attribute]) -> AbstractContextManager[TraceSpan]:
        return self._block

    def close(self) -> None:
        return None


NULL_TRACER = NullTracer()
