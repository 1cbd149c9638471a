"""A reminder from the wish to the moment when it is due."""

from __future__ import annotations

from tests.kit.app_driver import Visit

CALL = {"when": "in 2 hours", "text": "call Anna about the boat"}
ASKS = {"match": {"kind": "chat"}, "times": 1, "action": {"tool_use": [{"name": "remind_me", "input": CALL}]}}
SET = {"match": {"kind": "chat"}, "times": 1, "action": {"text": "I will remind you."}}
TELLS = {"match": {"kind": "chat"}, "times": 1, "action": {"text": "It is time to call Anna."}}


async def looked(guest: Visit) -> str:
    """As the process of a channel does each second: begin what is due, answer what nobody answers."""
    for session_id in await guest.app.sessions.list_unanswered("web"):
        await guest.app.sessions.answer(session_id, guest.hear)
    return guest.last_words


async def comes_due(guest: Visit) -> None:
    await guest.app.pool.execute("UPDATE reminders SET tell_at = now(), due_at = now()")
