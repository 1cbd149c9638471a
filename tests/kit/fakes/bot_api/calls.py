"""Calls of the fake, and their records for tests."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.kit.fakes.bot_api.accounts import Bot
from tests.kit.fakes.bot_api.shapes import Json
from tests.kit.fakes.bot_api.wire import Upload

MAX_CALLS = 20_000


@dataclass(slots=True, kw_only=True)
class Record:
    id: int
    at: float
    method: str
    bot: int | None = None
    params: Json = field(default_factory=dict)
    files: dict[str, int] = field(default_factory=dict)
    """Sizes of uploaded files in bytes, by name."""
    status: int = 0
    outcome: str = "open"
    """One of open, answered, refused, lost (connection was cut), client_gone and in_webhook (call in a
    response).
    """
    processed: bool = False
    description: str | None = None
    result: object = None
    fault: Json | None = None
    violation: bool = False

    def as_json(self) -> Json:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Call with parameters of the right types."""

    method: str
    bot: Bot
    params: Json
    uploads: dict[str, Upload]


class Journal:
    def __init__(self) -> None:
        self._records: deque[Record] = deque(maxlen=MAX_CALLS)
        self._violations: deque[Json] = deque(maxlen=MAX_CALLS)
        self._next_id = 1

    def open(self, method: str, at: float) -> Record:
        record = Record(id=self._next_id, at=at, method=method)
        self._next_id += 1
        self._records.append(record)
        return record

    def violated(self, record: Record, words: str) -> None:
        record.violation = True
        self._violations.append(
            {
                "call": record.id,
                "method": record.method,
                "bot": record.bot,
                "problem": words,
                "params": record.params,
            }
        )

    def violations(self) -> list[Json]:
        return list(self._violations)

    def calls(
        self, *, since: int = 0, method: str | None = None, bot: int | None = None, chat: int | None = None
    ) -> list[Json]:
        wanted = method.lower() if method else None
        return [
            record.as_json()
            for record in self._after(since)
            if (wanted is None or record.method.lower() == wanted)
            and (bot is None or record.bot == bot)
            and (chat is None or record.params.get("chat_id") == chat)
        ]

    def counts(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for record in self._records:
            found[record.method] = found.get(record.method, 0) + 1
        return found

    def reset(self) -> None:
        """Delete all records; their numbers continue."""
        self._records.clear()
        self._violations.clear()

    def _after(self, number: int) -> Iterator[Record]:
        return (record for record in self._records if record.id > number)
