"""Compares screen and database of a replay, and counts what was lost, doubled or out of order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from tests.kit.replay.evidence import Evidence
from tests.kit.replay.transcript import ChatReading
from tests.kit.replay.visitor import VisitorScreen


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayVerdict:
    """The verdict on one conversation, or the sum of all.

    Fields that only the database can tell are None if it was not asked.
    """

    id: str
    session: str
    sent: int
    acknowledged: int
    answered: int
    refused: int
    lost: int
    doubled: int
    out_of_order: int
    reconnects: int
    turns: int | None
    flushes: int | None
    flushes_failed: int | None
    compactions: int | None
    digests: int | None
    notes: int | None
    max_context: int | None
    limit: int | None
    hard: int | None
    over_hard: int | None
    over_limit: int | None
    over_limit_outside: int | None
    jobs: int | None
    jobs_dead: int | None
    usd: float | None
    """Cost in USD; None also if the price of a call is unknown."""
    given_up: str = ""
    uncertain: int | None = None
    """Parts on Telegram whose acknowledgement was lost: they are in the chat, and the person was asked about
    them.
    """
    strays: int | None = None
    """Partial answers on Telegram without acknowledgement, which the bot could neither complete nor
    delete.
    """

    @property
    def broken(self) -> int:
        return self.lost + self.doubled + self.out_of_order + (self.over_hard or 0)

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def judge(
    script_id: str, session: str, seen: VisitorScreen, evidence: Evidence | None, *, given_up: str = ""
) -> ReplayVerdict:
    shown: dict[str, Any] = {
        "id": script_id,
        "session": session,
        "sent": len(seen.sent),
        "acknowledged": len(seen.acknowledged),
        "refused": len(seen.refused),
        "reconnects": seen.reconnects,
        "given_up": given_up,
    }
    unseen = {cid for cid in seen.acknowledged if cid in seen.open}
    twice = sum(count - 1 for count in seen.finals.values() if count > 1)
    if evidence is None:
        told: dict[str, Any] = dict.fromkeys(_ONLY_STORED)
        return ReplayVerdict(
            **shown, **told, answered=seen.answered, lost=len(unseen), doubled=twice, out_of_order=seen.gaps
        )
    unanswered = _unanswered(seen, evidence)
    return ReplayVerdict(
        **shown,
        answered=len(seen.acknowledged) - len(unseen | unanswered),
        lost=len(unseen | unanswered),
        doubled=max(twice, _doubled(evidence)),
        out_of_order=seen.gaps + evidence.misplaced + _shuffled(seen, evidence),
        usd=None if evidence.unknown_calls else evidence.cost_micro / 1_000_000,
        **{name: getattr(evidence, name) for name in _ONLY_STORED if name != "usd"},
    )


def judge_chat(
    script_id: str,
    session: str,
    *,
    sent: int,
    stored: int,
    reading: ChatReading,
    evidence: Evidence | None,
    restarts: int,
    given_up: str = "",
) -> ReplayVerdict:
    """Return the verdict on a conversation over Telegram, from what its person sees at the end and from
    Postgres.
    """
    told: dict[str, Any] = dict.fromkeys(_ONLY_STORED)
    if evidence is not None:
        told = {name: getattr(evidence, name) for name in _ONLY_STORED if name != "usd"}
        told["usd"] = None if evidence.unknown_calls else evidence.cost_micro / 1_000_000
    return ReplayVerdict(
        **told,
        id=script_id,
        session=session,
        sent=sent,
        acknowledged=stored,
        answered=reading.answered,
        refused=0,
        lost=reading.lost,
        doubled=max(reading.doubled, _finals_twice(evidence) if evidence else 0),
        out_of_order=reading.out_of_order + (evidence.misplaced if evidence else 0),
        reconnects=restarts,
        given_up=given_up,
        uncertain=reading.uncertain,
        strays=reading.strays,
    )


def total(verdicts: Sequence[ReplayVerdict]) -> ReplayVerdict:
    """Return the sum of all verdicts; of sizes the largest."""
    largest = ("max_context", "limit", "hard")
    numbers: dict[str, int | float | None] = {}
    for name in _NUMBERS:
        values = [getattr(verdict, name) for verdict in verdicts]
        known = [value for value in values if value is not None]
        whole = bool(known) and len(known) == len(values)
        numbers[name] = (max(known) if name in largest else sum(known)) if whole else None
    return ReplayVerdict(id="all", session="", **numbers)  # type: ignore[arg-type]


def _unanswered(seen: VisitorScreen, evidence: Evidence) -> set[str]:
    """Return the client ids of acknowledged messages whose turn has not ended or has no final answer."""
    kept = {message.cid for message in evidence.messages if message.ended and message.finals > 0}
    return {cid for cid in seen.acknowledged if cid not in kept}


def _doubled(evidence: Evidence) -> int:
    stored = Counter(message.cid for message in evidence.messages)
    return _finals_twice(evidence) + sum(n - 1 for n in stored.values() if n > 1)


def _finals_twice(evidence: Evidence) -> int:
    finals = {message.turn: message.finals for message in evidence.messages}
    return sum(n - 1 for n in finals.values() if n > 1)


def _shuffled(seen: VisitorScreen, evidence: Evidence) -> int:
    """Return the number of messages that are stored before one that was sent earlier."""
    place = {cid: number for number, cid in enumerate(seen.sent)}
    sent = [place[message.cid] for message in evidence.messages if message.cid in place]
    return sum(later < earlier for earlier, later in pairwise(sent))


_ONLY_STORED = (
    "turns", "flushes", "flushes_failed", "compactions", "digests", "notes", "max_context", "limit", "hard",
    "over_hard", "over_limit", "over_limit_outside", "jobs", "jobs_dead", "usd",
)  # fmt: skip
_NUMBERS = (
    "sent", "acknowledged", "answered", "refused", "lost", "doubled", "out_of_order", "reconnects",
    "uncertain", "strays", *_ONLY_STORED,
)  # fmt: skip
