"""Models the provider's prompt cache: what a request writes, reads back, and what lapses.

Published rules: a prefix is looked up at each breakpoint and at up to 20 blocks before it; entries are
written at breakpoints only, from 1,024 tokens on; reading an entry renews it. A changed tool choice, thinking
setting or output format invalidates the messages' part, another model everything.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.kit.fakes.messages_api.prefix import Piece, chain, pieces_of
from tests.kit.fakes.messages_api.shapes import Json, compact_json

MIN_CACHEABLE = 1_024
LOOK_BACK_BLOCKS = 20
SECONDS_TO_LIVE = {"5m": 300.0, "1h": 3_600.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class InputUsage:
    """Input tokens of one request, by how the cache handled them."""

    fresh: int
    """Tokens neither read from the cache nor written to it: the `input_tokens` of the usage."""
    read: int = 0
    written_5m: int = 0
    written_1h: int = 0

    @property
    def written(self) -> int:
        return self.written_5m + self.written_1h

    @property
    def total(self) -> int:
        return self.fresh + self.read + self.written


@dataclass(slots=True, kw_only=True)
class _Entry:
    seconds_to_live: float
    lapses_at: float


class PrefixCache:
    """The cached prefixes of all models."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}

    def reset(self) -> None:
        self._entries.clear()

    def use(self, body: Json, *, now: float) -> InputUsage:
        """Look up a request's prefixes, store its breakpoints, and return how its input tokens were handled.

        `now` is in seconds.
        """
        pieces = pieces_of(body)
        total = sum(piece.tokens for piece in pieces)
        hashes = chain(pieces, root=str(body.get("model")), before_messages=_message_settings(body))
        sums = _running_sums(pieces)
        marks = [i for i, piece in enumerate(pieces) if piece.mark and sums[i] >= MIN_CACHEABLE]
        if not marks:
            return InputUsage(fresh=total)
        hit = self._longest_hit(hashes, marks, now)
        read = sums[hit] if hit is not None else 0
        written = {"5m": 0, "1h": 0}
        upto = read
        for i in marks:
            kind = pieces[i].mark or "5m"
            if sums[i] > upto:
                written[kind] += sums[i] - upto
                upto = sums[i]
            live = SECONDS_TO_LIVE[kind]
            self._entries[hashes[i]] = _Entry(seconds_to_live=live, lapses_at=now + live)
        return InputUsage(fresh=total - upto, read=read, written_5m=written["5m"], written_1h=written["1h"])

    def _longest_hit(self, hashes: tuple[str, ...], marks: list[int], now: float) -> int | None:
        for mark in reversed(marks):
            for i in range(mark, max(-1, mark - LOOK_BACK_BLOCKS), -1):
                entry = self._entries.get(hashes[i])
                if entry is not None and entry.lapses_at > now:
                    entry.lapses_at = now + entry.seconds_to_live
                    return i
        return None


def _message_settings(body: Json) -> str:
    names = ("tool_choice", "thinking", "output_config")
    return compact_json({name: body[name] for name in names if body.get(name) is not None})


def _running_sums(pieces: tuple[Piece, ...]) -> list[int]:
    sums, total = [], 0
    for piece in pieces:
        total += piece.tokens
        sums.append(total)
    return sums
