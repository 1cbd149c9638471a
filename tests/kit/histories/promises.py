"""The twelve promises of the context engine, each as checks that a history runs while it is played."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from shared.core.context.build_context import BuiltContext
from shared.core.context.prompts import OUR_TAGS
from shared.core.overflow.overflow_recovery import TAIL_TURNS, Shrunk
from shared.core.session.ledger import Ledger
from shared.core.session.session import Entry, View
from shared.core.values.messages import (
    Block,
    Image,
    Message,
    ProviderBlock,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    repair,
    tool_results,
    tool_uses,
)
from tests.kit.histories.log import Log
from tests.kit.histories.sayings import SECRET
from tests.kit.histories.validity import fault_of, refused_by_sdk_types

Promise = Literal[
    "no_loss",
    "whole_turns",
    "valid_request",
    "never_dropped",
    "pure_and_stable",
    "idempotent",
    "progress",
    "bounded",
    "silence",
    "provenance",
    "undo_is_exact",
    "erasure",
]
PROMISES: tuple[Promise, ...] = get_args(Promise)
_OUR_MARK = re.compile(rf"<\s*/?\s*(?:{'|'.join(OUR_TAGS)})\b", re.IGNORECASE)


class Broken(AssertionError):
    """A promise that does not hold; the message says which, and how it was broken."""

    def __init__(self, promise: Promise, how: str) -> None:
        super().__init__(f"{promise}: {how}")
        self.promise = promise


@dataclass(slots=True)
class Judge:
    """Checks promises, and counts the checks of each, so that an unchecked promise is noticed."""

    looked: Counter[Promise] = field(default_factory=Counter)

    def holds(self, promise: Promise, fine: object, how: str) -> None:
        """Count a check of this promise.

        Raises Broken with the words `how` unless `fine` is true.
        """
        self.looked[promise] += 1
        if not fine:
            raise Broken(promise, how)

    # ---- the log

    def no_loss(self, log: Log) -> None:
        covered = sorted(
            (stored.compaction.from_turn, stored.compaction.through_turn)
            for stored in log.links
            if stored.active
        )
        expected = 1
        for first, last in covered:
            if first != expected or last < first:
                break
            expected = last + 1
        whole = expected == log.base + 1
        self.holds("no_loss", whole, "" if whole else f"active links {covered} cover 1 … {log.base}")
        placed = [seq for seqs in log.turns.values() for seq in seqs]
        gone = set(log.entries) - set(placed) - set(log.replaces) - set(log.replaces.values())
        self.holds("no_loss", not gone, f"entries {gone} are in no turn")
        self.holds("no_loss", len(placed) == len(set(placed)), "an entry is in two turns")
        live = [entry.seq for entry in log.view().entries]
        wanted = [s for t in range(log.base + 1, log.answered + 1) for s in log.turns[t]]
        self.holds("no_loss", live == wanted, "" if live == wanted else f"live are {live}, not {wanted}")

    def conserved(self, former: Ledger, new: Ledger) -> None:
        after = {item.id: item for item in new.items}
        for item in former.items:
            if item.closed is None:
                left = after.get(item.id)
                self.holds("no_loss", left is not None, f"item {item.id} left the ledger without a reason")
                self.holds("no_loss", left is None or left.closed != "", f"{item.id} closed for no reason")
        ids = [item.id for item in new.items]
        self.holds("no_loss", len(ids) == len(set(ids)), f"an id was given twice: {ids}")

    def whole_turns(self, view: View, first_hidden: int, through: int, keeps: int) -> None:
        turns = {entry.turn for entry in view.entries if entry.turn != view.open_turn}
        live = [entry for entry in view.entries if entry.turn > through]
        self.holds("whole_turns", first_hidden == view.base_turn + 1 <= through, "a range with a gap")
        self.holds(
            "whole_turns", view.open_turn is None or through < view.open_turn, "the open turn is hidden"
        )
        self.holds("whole_turns", not live or live[0].author == "person", "the live view begins in mid-turn")
        left = len({turn for turn in turns if turn > through})
        self.holds("whole_turns", left >= keeps, f"{left} ended turns are left, {keeps} must stay")

    # ---- requests

    def request(self, built: BuiltContext, *, by_types: bool) -> None:
        fault = fault_of(built.messages)
        self.holds("valid_request", fault is None, str(fault))
        marks = built.cache_at
        self.holds(
            "valid_request",
            len(marks) <= 3 and all(0 <= at < len(built.messages) for at in marks),
            f"cache marks {marks} in {len(built.messages)} messages",
        )
        if by_types:
            refused = refused_by_sdk_types(built.system, built.messages, cache_at=marks)
            self.holds("valid_request", refused is None, str(refused))
        self.holds("idempotent", repair(built.messages) == built.messages, "repair mends a mended request")

    def shown(self, view: View, messages: Sequence[Message], wanted: Iterable[Entry]) -> None:
        """Check that the request contains every text of these entries, found by the marker at its
        beginning.
        """
        text = text_of_request(messages)
        for entry in wanted:
            for block in entry.blocks:
                if isinstance(block, Text) and block.text.startswith("⟦"):
                    mark = block.text[: block.text.index("⟧") + 1]
                    self.holds("never_dropped", mark in text, f"entry {entry.seq} is not in the request")

    def only_open_thinking(self, view: View, messages: Sequence[Message]) -> None:
        allowed = {
            block.signature
            for entry in view.entries
            if entry.turn == view.open_turn
            for block in entry.blocks
            if isinstance(block, Thinking)
        }
        sent = {b.signature for m in messages for b in m.blocks if isinstance(b, Thinking)}
        self.holds("valid_request", sent <= allowed, f"thinking of ended turns is sent: {sent - allowed}")

    def grows(self, before: Sequence[Message], after: Sequence[Message], why: str) -> None:
        same = list(after[: len(before)]) == list(before)
        if same:
            self.holds("pure_and_stable", True, why)
            return
        at = next(i for i, m in enumerate(before) if i >= len(after) or after[i] != m)
        self.holds("pure_and_stable", False, f"{why}: message {at} of {len(before)} changed")

    def volatile_is_last(self, built: BuiltContext, volatile: str) -> None:
        last = max(built.cache_at, default=-1)
        stable = list(built.messages[: last + 1])
        if built.behind_mark:
            stable[-1] = replace(stable[-1], blocks=stable[-1].blocks[: -built.behind_mark])
        early = text_of_request(stable) + "".join(part.text for part in built.system)
        self.holds("pure_and_stable", volatile not in early, "volatile words stand before a cache mark")

    def ours_alone(self, built: BuiltContext, *, summary: bool, pins: int) -> None:
        """Check that only the program opens one of its tags in what a person or a tool said."""
        opened = Counter(
            mark.group(0).lower().replace("<", "").strip()
            for message in built.messages
            if message.role == "user"
            for block in message.blocks
            if isinstance(block, Text | ToolResult)
            for mark in _OUR_MARK.finditer(block.text)
        )
        self.holds(
            "provenance",
            opened["conversation_summary"] == int(summary) and opened["pinned_messages"] == pins,
            f"forged marks in a request: {dict(opened)}",
        )

    # ---- what a summariser reads

    def source(self, text: str, planted: Iterable[str]) -> None:
        found = _OUR_MARK.search(text)
        self.holds("provenance", found is None, f"a mark of ours is in the source: {found}")
        for word in planted:
            self.holds("provenance", word not in text, f"what we injected is in the source: {word}")
        self.holds("provenance", SECRET not in text, "a secret is in the source")

    # ---- the last steps of the ladder

    def shrunk(self, view: View, made: Shrunk, *, hard: int, tokens: int) -> None:
        self.holds("bounded", tokens <= hard, f"{tokens} tokens after shrinking to {hard}")
        fault = fault_of(made.context.messages)
        self.holds("valid_request", fault is None, f"after shrinking: {fault}")
        newest = [e for e in view.entries if e.turn == view.open_turn and e.author == "person"]
        waiting = [e for e in view.entries if e.turn in unresolved(view) and e.author == "person"]
        pinned = [*view.pins, *(e for e in view.entries if e.pinned)]
        ended = sorted({e.turn for e in view.entries if e.turn != view.open_turn})
        if made.digested_through in ended[-TAIL_TURNS - 1 :]:
            waiting = []  # at the last step only the digest mentions these
        self.shown(view, made.context.messages, [*newest, *waiting, *pinned])


def unanswered(view: View) -> set[int]:
    """Return the numbers of the turns whose last message is not the assistant's answer."""
    last = {entry.turn: entry for entry in view.entries}
    return {t for t, entry in last.items() if entry.role != "assistant" or tool_uses(entry.blocks)}


def unresolved(view: View) -> set[int]:
    """Return the numbers of the unanswered turns, and of the turns whose last tool call failed."""
    tried = {entry.turn: result for entry in view.entries for result in tool_results(entry.blocks)}
    return unanswered(view) | {turn for turn, result in tried.items() if result.is_error}


def text_of_request(messages: Sequence[Message]) -> str:
    return "\n".join(_words(block) for message in messages for block in message.blocks)


def _words(block: Block) -> str:
    match block:
        case Text(text=text) | ToolResult(text=text):
            return text
        case ToolUse(input=arguments):
            return str(dict(arguments))
        case Image() | Thinking() | ProviderBlock():
            return ""
