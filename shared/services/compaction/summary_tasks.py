"""One step of a summary: what is asked of a model, and how its answer is judged, by the form of the plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from shared.core.compaction.audit import AuditVerdict, audit_patch
from shared.core.compaction.note_requests import NoteWish, wishes_from
from shared.core.compaction.plan import CompactionPlan
from shared.core.compaction.summary_prompts import (
    in_lines,
    merge_request,
    repair_request,
    summary_request,
    warm_instruction,
)
from shared.core.compaction.text_audit import audit_text, read_text
from shared.core.compaction.titles import checked_title, split_title
from shared.core.compaction.transcript_lines import source_words
from shared.core.session.ledger import Ledger
from shared.core.session.policy import SummaryForm
from shared.core.session.rendering import render_summary
from shared.core.session.summary import LedgerPatch, Unreadable, parse_ledger_patch
from shared.core.session.summary_rules import SUMMARY_SCHEMA, TITLED_SCHEMA, form_of
from shared.core.values.language import language_of
from shared.core.values.messages import Text, text_message
from shared.ports import ModelRequest, SystemPart

_WORDS_PER_TOKEN = 0.7
_CLEAR = 12

CountTokens = Callable[[str], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryTask:
    step: str
    form: SummaryForm
    system: str
    user: str
    judge: Callable[[str], AuditVerdict | str]
    """What to do with an answer: the audit's verdict, or why it could not even be read."""
    prefix: ModelRequest | None = None
    """A chat request that the provider still has in its cache; the words are put behind it."""
    with_notes: bool = False
    check_title: Callable[[str], str] | None = None
    """What of a title may be shown; None where none is asked for."""

    @property
    def is_text(self) -> bool:
        return form_of(self.form).is_text

    def build_request(self, model: str, *, room: int, as_lines: bool = False) -> ModelRequest:
        """`as_lines` for a model that writes no JSON."""
        if self.prefix is not None:
            return _behind(self.prefix, self.user)
        as_lines = as_lines and not self.is_text
        return ModelRequest(
            model=model,
            system=(SystemPart(text=self.system),),
            messages=(text_message("user", self._in_lines if as_lines else self.user),),
            max_output_tokens=room,
            json_schema=None if self.is_text or as_lines else self._schema,
        )

    @property
    def _in_lines(self) -> str:
        return in_lines(self.user, titled=self.check_title is not None)

    @property
    def _schema(self) -> Mapping[str, Any]:
        return TITLED_SCHEMA if self.check_title else SUMMARY_SCHEMA

    def title_in(self, answer: str) -> str:
        """What the conversation may be called; empty where that was not asked for or is no good."""
        if self.check_title is None:
            return ""
        if self.is_text:
            return self.check_title(split_title(answer)[0])
        patch = parse_ledger_patch(answer)
        return self.check_title(patch.title) if isinstance(patch, LedgerPatch) else ""

    def notes_in(self, answer: str) -> tuple[NoteWish, ...] | None:
        """What is to be saved to memory; None where that was not asked for or not answered."""
        patch = parse_ledger_patch(answer) if self.with_notes else None
        if not isinstance(patch, LedgerPatch) or patch.notes is None:
            return None
        return wishes_from(patch.notes)

    def build_repair(self, fault: str) -> str:
        return repair_request(fault, form=self.form)


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryTasks:
    """All that one plan and one wish may ask for."""

    plan: CompactionPlan
    focus: str | None
    count_tokens: CountTokens

    def build_portion(self, source: str, former: Ledger, *, titled: bool = False) -> SummaryTask:
        system, user = summary_request(
            source,
            former,
            self.focus,
            language=_language(source),
            form=self.plan.form,
            most_words=self._most_words,
            titled=titled,
        )
        task = self._task("portion", system, user, self._judge(source, former, titled=titled))
        return replace(task, check_title=_title_check(source, former) if titled else None)

    def build_whole(
        self, source: str, prefix: ModelRequest, *, with_notes: bool = False, titled: bool = False
    ) -> SummaryTask:
        """Over the whole range at once, behind the chat that has it word for word."""
        user = warm_instruction(
            source,
            self.plan.former,
            self.focus,
            language=_language(source),
            form=self.plan.form,
            most_words=self._most_words,
            with_notes=with_notes,
            titled=titled,
        )
        check = _title_check(source, self.plan.former) if titled else None
        task = self._task("warm", "", user, self._judge(source, self.plan.former, titled=titled))
        return replace(task, prefix=prefix, with_notes=with_notes, check_title=check)

    def build_merge(self, parts: Sequence[Ledger], joined: Ledger, source: str) -> SummaryTask:
        system, user = merge_request(
            joined,
            [render_summary(part) for part in parts],
            self.focus,
            language=_language(source),
            form=self.plan.form,
            most_words=self._most_words,
        )
        return self._task("merge", system, user, self._judge(source, joined, merging=True))

    @property
    def _most_words(self) -> int:
        return round(_WORDS_PER_TOKEN * self.plan.summary_limit)

    def _task(
        self, step: str, system: str, user: str, judge: Callable[[str], AuditVerdict | str]
    ) -> SummaryTask:
        return SummaryTask(step=step, form=self.plan.form, system=system, user=user, judge=judge)

    def _judge(
        self, source: str, former: Ledger, *, merging: bool = False, titled: bool = False
    ) -> Callable[[str], AuditVerdict | str]:
        form = form_of(self.plan.form)

        def of_text(answer: str) -> AuditVerdict | str:
            sections = read_text(split_title(answer)[1] if titled else answer, form)
            if isinstance(sections, Unreadable):
                return sections.reason
            return audit_text(
                sections, former, source, form=form, count=self.count_tokens, limit=self.plan.summary_limit
            )

        def of_patch(answer: str) -> AuditVerdict | str:
            patch = parse_ledger_patch(answer)
            if isinstance(patch, Unreadable):
                return patch.reason
            return audit_patch(
                former,
                replace(patch, add=()) if merging else patch,
                source,
                count=self.count_tokens,
                limit=self.plan.summary_most,
                may_be_empty=merging,
            )

        return of_text if form.is_text else of_patch


def _title_check(source: str, former: Ledger) -> Callable[[str], str]:
    return partial(checked_title, source_text=source, former=former)


def _behind(prefix: ModelRequest, words: str) -> ModelRequest:
    """As the last message of the user; where the person has just spoken, in the same message."""
    messages = prefix.messages
    if not messages or messages[-1].role != "user":
        return replace(prefix, messages=(*messages, text_message("user", words)))
    last = replace(messages[-1], blocks=(*messages[-1].blocks, Text(text=words)))
    is_marked = len(messages) - 1 in prefix.cache_at
    return replace(prefix, messages=(*messages[:-1], last), behind_mark=prefix.behind_mark + int(is_marked))


def _language(source: str) -> str | None:
    return language_of(source_words(source), least=_CLEAR)
