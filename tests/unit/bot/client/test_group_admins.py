"""Roles in groups: a refusal is an answer, a rate limit and a lost reply are none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from bot.telegram.client.calls import (
    CallDone,
    CallNotSent,
    CallOutcome,
    CallRejected,
    CallUnknown,
    ChatUnreachable,
)
from bot.telegram.client.group_admins import GroupAdmins, GroupRole


class Lookups:
    """A sender whose lookups have these outcomes, in their order."""

    def __init__(self, *outcomes: CallOutcome) -> None:
        self.outcomes = list(outcomes)

    async def get_member(self, _chat_id: int, _user_id: int, *, patience: float) -> CallOutcome:
        return self.outcomes.pop(0)


def found(status: str) -> CallDone:
    return CallDone(result=SimpleNamespace(status=status))


@pytest.mark.control("S47")
@pytest.mark.parametrize(
    ("outcome", "role"),
    [
        (found("creator"), "admin"), (found("administrator"), "admin"), (found("member"), "member"),
        (found("restricted"), "member"), (CallRejected(reason="PARTICIPANT_ID_INVALID"), "member"),
        (ChatUnreachable(reason="chat not found"), "member"),
        (CallNotSent(reason="too many requests", retry_after=30.0), "unknown"),
        (CallUnknown(reason="Internal Server Error"), "unknown"),
    ],
)  # fmt: skip
async def test_role_is_unknown_only_while_telegram_does_not_say(
    outcome: CallOutcome, role: GroupRole
) -> None:
    admins = GroupAdmins(cast("Any", Lookups(outcome)))
    assert await admins.find_role(-5, 7, patience=0.0) == role


async def test_role_is_kept_only_when_telegram_said_it() -> None:
    lookups = Lookups(CallUnknown(reason="lost"), found("administrator"))
    admins = GroupAdmins(cast("Any", lookups))
    roles = [await admins.find_role(-5, 7, patience=0.0) for _ in range(3)]
    assert (roles, lookups.outcomes) == (["unknown", "admin", "admin"], [])
