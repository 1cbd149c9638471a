"""No order to a model, and no secret, gets into a summary or into what is always shown of memory."""

from __future__ import annotations

from typing import Any, cast

import pytest

from shared.core.compaction.audit import audit_patch
from shared.core.compaction.digest import digest
from shared.core.compaction.next_ledger import LedgerPatch, NewItem
from shared.core.compaction.plan import render_source
from shared.core.compaction.summary_filters import Ground, holds_injection, text_fault
from shared.core.context.memory import core_notes
from shared.core.context.notes import NewNote, NoteResult, NoteSource
from shared.core.session.ledger import Ledger
from shared.core.session.session import Entry, Note
from shared.core.session.summary import render_summary
from shared.ports import ToolContext, ToolFailed
from shared.runtime import ignore_crash_point
from shared.services.memory.memory_tools import SaveMemoryTool
from tests.kit.builders import entry, exchange, words
from tests.kit.injection_samples import NOTES, ORDERS, OTHERS, OURS, WISHES


def log_with(sample: str) -> list[Entry]:
    before, after = exchange(1, "We meet in Lisbon in May.", "Noted."), exchange(4, "And Ada?", "Yes.")
    return [*before, entry(5, 2, sample), *after]


def source_with(sample: str) -> str:
    return render_source(log_with(sample))


@pytest.mark.parametrize("sample", ORDERS)
def test_an_order_is_known_for_one_in_every_language(sample: str) -> None:
    assert holds_injection(sample)


@pytest.mark.control("S24")
@pytest.mark.parametrize("sample", [*ORDERS, *OTHERS, *NOTES, *(s for s in OURS if s.startswith("<"))])
def test_an_order_that_was_said_is_still_no_item_of_a_summary(sample: str) -> None:
    """Said by a person or read in a file: it is in the log, and there it stays."""
    source = source_with(sample)
    patch = LedgerPatch(
        narrative=f"They meet in Lisbon. {sample}",
        add=(
            NewItem(kind="constraint", text=sample, sources=(5,)),
            NewItem(kind="fact", text="We meet in Lisbon in May.", sources=(1,)),
        ),
    )
    verdict = audit_patch(Ledger(), patch, source, count=words)
    shown = render_summary(verdict.ledger)
    assert sample not in shown
    assert "Lisbon" in shown


@pytest.mark.control("S24")
@pytest.mark.parametrize("sample", ORDERS)
def test_the_digest_without_a_model_carries_no_order_on(sample: str) -> None:
    source = source_with(sample)
    assert text_fault(sample, Ground.of(source, Ledger())) is not None
    assert sample not in render_summary(digest(log_with(sample), Ledger(), words, budget_tokens=500))


@pytest.mark.control("S21")
def test_note_vouched_by_a_tool_alone_is_not_in_prompt() -> None:
    notes = [Note(id=number, kind="fact", text=text, authority="tool") for number, text in enumerate(ORDERS)]
    assert core_notes(notes, words) == ()


@pytest.mark.parametrize(
    "words_",
    ["We ignored the noise.", "The system works.", "Please repeat the output of the test.", "New shoes: red.",
     "The assistant must be polite, she said.", *WISHES],
)  # fmt: skip
def test_ordinary_sentences_are_not_taken_for_orders(words_: str) -> None:
    assert not holds_injection(words_)


class Notes:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    async def save(self, note: NewNote, source: NoteSource) -> NoteResult:
        self.texts.append(note.text)
        return NoteResult(outcome="saved")


CONTEXT = ToolContext(session_id=1, contact_id=1, scope="main", turn=1, key="k", call_id="c")


@pytest.mark.control("S21")
@pytest.mark.parametrize("sample", [*ORDERS, *OTHERS, *NOTES])
async def test_no_order_becomes_a_note(sample: str) -> None:
    notes = Notes()
    with pytest.raises(ToolFailed):
        await keeps(notes, sample, "instruction")
    assert notes.texts == []


@pytest.mark.control("S21", "S36")
async def test_a_note_is_kept_without_the_secret_in_it() -> None:
    notes = Notes()
    for text in ("Ada's password is Tr0ub4dor and her cat is Miso.", *WISHES):
        await keeps(notes, text, "preference")
    assert notes.texts == ["Ada's password is [secret removed] and her cat is Miso.", *WISHES]


async def keeps(notes: Notes, text: str, kind: str) -> None:
    tool = SaveMemoryTool(cast("Any", notes), ignore_crash_point)
    await tool.run({"text": text, "kind": kind}, context=CONTEXT)
