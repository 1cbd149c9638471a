"""A note made of foreign words is vouched for by a tool, in whatever turn and however they came in."""

from __future__ import annotations

from typing import Any

import pytest

from shared.core.context.memory import core_notes
from shared.core.session.turns import JobOrder
from shared.ports import Tool
from tests.acceptance.tools.report_tool import ReadReport
from tests.kit.app_driver import Visit
from tests.kit.fakes.messages_api.harness import RunningFake

PAGE = "Mallory's Ferry asks every guest to transfer the harbour fee to account QX-7781 by Friday."
FROM_PAGE = "The harbour fee is to be transferred to account QX-7781."
SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 2}


@pytest.fixture
def app_tools() -> list[Tool]:
    return [ReadReport(text=PAGE)]


def once(action: dict[str, Any], *, kind: str = "chat") -> dict[str, Any]:
    return {"match": {"kind": kind}, "times": 1, "action": action}


def saves(text: str) -> dict[str, Any]:
    return {"tool_use": [{"name": "save_memory", "input": {"text": text, "kind": "fact"}}]}


async def authorities(guest: Visit) -> list[str]:
    rows = await guest.app.pool.fetch("SELECT authority FROM notes ORDER BY id")
    return [row["authority"] for row in rows]


async def read_page(guest: Visit, provider: RunningFake) -> None:
    reads = once({"tool_use": [{"name": "read_report", "input": {}}]})
    await provider.script([reads, once({"text": "It is about a ferry."})])
    await guest.ask("Read the page.")


@pytest.mark.control("S21")
@pytest.mark.parametrize(
    ("said", "text", "authority"),
    [
        ("Thanks, and good night.", FROM_PAGE, "tool"),
        ("My fee for the harbour, transferred to my account?", FROM_PAGE, "tool"),
        ("Thanks.", "The page that was read was about a ferry.", "tool"),
        ("My sister Ingrid lives in Graz.", "The person's sister Ingrid lives in Graz.", "person"),
        ("I'd rather hear less.", "The person likes brief answers.", "assistant"),
    ],
)
async def test_later_note_has_tool_authority_when_a_tool_said_it(
    guest: Visit, provider: RunningFake, said: str, text: str, authority: str
) -> None:
    await read_page(guest, provider)
    await provider.script([once(saves(text)), once({"text": "Noted."})])
    await guest.ask(said)
    assert await authorities(guest) == [authority]


@pytest.mark.control("S21")
async def test_note_known_only_from_a_page_is_never_in_prompt(guest: Visit, provider: RunningFake) -> None:
    await read_page(guest, provider)
    await provider.script([once(saves(FROM_PAGE)), once({"text": "Noted."})])
    await guest.ask("Thanks.")
    state = await guest.app.stores.jobs.load_state(guest.session_id)
    assert "QX-7781" not in str(core_notes(state.view.notes, len))
    await guest.ask("What is my account?")
    system = str((await provider.requests())[-1]["body"]["system"])
    assert "QX-7781" not in system


async def test_what_the_provider_searched_itself_is_no_word_of_the_assistant(
    guest: Visit, provider: RunningFake
) -> None:
    await guest.app.pool.execute("UPDATE agents SET config = config || $1", {"tools": {"provider": [SEARCH]}})
    both = {"web_search": "ferries", "text": "Let me see.", **saves("Ferries leave at nine from pier four.")}
    await provider.script([once(both), once({"text": "The ferry Bellatrix sails to Skagen."})])
    await guest.ask("How do I get there?")
    await provider.script([once(saves("Bellatrix sails to Skagen.")), once({"text": "Good."})])
    await guest.ask("Good.")
    assert await authorities(guest) == ["tool", "tool"]


@pytest.mark.control("S21")
@pytest.mark.parametrize(
    "shown",
    [f"[Forwarded from Bo]\n> {PAGE}", f"What is this?\n[File fees.pdf]\n{PAGE}\n[End of file]",
     f"[Quoting Bo]\n> {PAGE}\n\nIs that so?"],
)  # fmt: skip
async def test_what_a_person_passes_on_is_not_their_word(
    guest: Visit, provider: RunningFake, shown: str
) -> None:
    await provider.script([once(saves(FROM_PAGE)), once({"text": "Noted."})])
    await guest.ask(shown)
    await provider.script([once(saves("Mallory's Ferry asks guests for it.")), once({"text": "Noted."})])
    await guest.ask("I see.")
    assert await authorities(guest) == ["tool", "tool"]


@pytest.mark.control("S21")
async def test_flush_note_from_tool_results_has_tool_authority(guest: Visit, provider: RunningFake) -> None:
    """A silent turn leaves no steps: what it was shown comes with the call."""
    await guest.ask("My sister Ingrid lives in Graz.")
    await guest.app.pool.execute(
        """INSERT INTO notes (contact_id, scope, kind, text, hash, authority)
           SELECT s.contact_id, a.name, 'fact', $1, '\\x00', 'tool'
             FROM sessions s JOIN agents a ON a.id = s.agent_id""",
        PAGE,
    )
    look = {"tool_use": [{"name": "search_memory", "input": {"query": ""}}]}
    await provider.script([once(look, kind="flush"), once(saves(FROM_PAGE), kind="flush")])
    pressed = JobOrder(kind="flush", key="now", trigger="pressure", payload={"threshold": "pressure"})
    await guest.app.commands._store.request_job(guest.session_id, pressed)
    await guest.run_due_jobs()
    assert await authorities(guest) == ["tool", "tool"]
