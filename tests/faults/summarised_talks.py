"""A talk that is long enough for a summary."""

from __future__ import annotations

from tests.kit.deployment.person import WALK, Person


async def talks(person: Person) -> None:
    for number in range(8):
        await person.ask(f"Number {number}: we meet on 2026-05-{number + 10} in Lisbon. {WALK}")


async def summarised(person: Person) -> None:
    told = await person.result_of(await person.command("compact", "--force"), "the summary")
    assert told["success"], told
