"""A conversation as the log stores it: entries with their tokens counted once."""

from __future__ import annotations

from collections.abc import Iterator

from shared.core.session.session import Entry
from shared.core.values.messages import Author, Block, Text, ToolResult, ToolUse
from shared.core.values.tokens import Count, estimate_blocks
from tests.bench.policies.workload import Conversation, Said


def entries_of(conversation: Conversation, count: Count) -> tuple[Entry, ...]:
    return tuple(
        entry for turn, said in enumerate(conversation.turns, 1) for entry in turn_entries(turn, said, count)
    )


def turn_entries(turn: int, said: Said, count: Count) -> Iterator[Entry]:
    """The person's message, a call and its result for each round, the answer; `seq` has room for all."""
    first = 100 * turn
    steps: list[tuple[Author, Block]] = [("person", Text(text=said.person))]
    for number, used in enumerate(said.rounds):
        call = f"toolu_{turn}_{number}"
        steps.append(("assistant", ToolUse(id=call, name=used.name, input={"query": used.argument})))
        steps.append(("tool", ToolResult(tool_use_id=call, text=used.result)))
    steps.append(("assistant", Text(text=said.answer)))
    for step, (author, block) in enumerate(steps):
        yield Entry(
            seq=first + step,
            turn=turn,
            step=step,
            role="assistant" if author == "assistant" else "user",
            author=author,
            blocks=(block,),
            tokens=estimate_blocks((block,), count),
            at=said.at,
        )
