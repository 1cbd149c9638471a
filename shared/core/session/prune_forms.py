"""Texts of shortened tool results, made by the policy or by a tool's own rule."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from shared.core.session.artifacts import reference_in
from shared.core.session.prune_rules import ToolRule
from shared.core.session.prune_strategy import PruneStrategy
from shared.core.session.session import Entry, PruneForm
from shared.core.values.messages import Block, ToolResult, tool_results

Shown = Mapping[str, str | None]
"""Shown text of each tool result by call id; None shows the stored text."""
FormOf = Callable[[ToolResult, PruneStrategy], PruneForm | None]
"""Function that decides the form of one tool result under a strategy; None leaves it whole."""

_TROUBLE = re.compile(r"error|exception|\bfail(?:ed|ure|s)?\b|traceback|\bpanic|\bfatal", re.IGNORECASE)
STRENGTH: dict[PruneForm | None, int] = {None: 0, "trim": 1, "duplicate": 2, "clear": 3, "hide": 4}
"""Rank of each form; a decision may only replace a form of lower rank."""


def render_blocks(
    entry: Entry, form: PruneForm | None, shown: Shown | None, pruning: PruneStrategy
) -> tuple[Block, ...]:
    """Return the entry's blocks with its tool results in `form`; None returns them as stored.

    `shown` holds texts, by call id, that replace the form's own; None if there are none.
    """
    if form is None:
        return entry.blocks
    return tuple(
        _render_block(block, form, shown, pruning) if isinstance(block, ToolResult) else block
        for block in entry.blocks
    )


def result_texts(blocks: Iterable[Block]) -> tuple[str, ...]:
    """Return the texts of the tool results among the blocks, in order."""
    return tuple(result.text for result in tool_results(blocks))


def decision_for(
    entry: Entry, pruning: PruneStrategy, names: Mapping[str, str], form_of: FormOf
) -> tuple[PruneForm | None, Shown | None]:
    """Return the strongest form that one of the entry's tool results needs, and the texts made by tools' own
    rules.

    The form is None if all stay whole; the texts are None if the form alone gives them. `names` has the tool
    of each call id; `form_of` decides where no rule of the tool does.
    """
    results = tool_results(entry.blocks)
    rules = pruning.prune_rules
    tools = [names.get(result.tool_use_id, "") for result in results]
    own = [rules.of(tool) for tool in tools]
    if not rules.pruners and not any(own):
        forms = [form_of(result, pruning) for result in results]
        return max(forms, key=STRENGTH.__getitem__, default=None), None
    now = result_texts(render_blocks(entry, entry.pruned, entry.pruned_as, pruning))
    wishes = [
        _by_rule(result, tool, rule, pruning, form_of, held=held, fresh=entry.pruned is None)
        for result, tool, rule, held in zip(results, tools, own, now, strict=True)
    ]
    texts = {
        result.tool_use_id: _choose_shorter(result.text, text, held)
        for result, (_, text), held in zip(results, wishes, now, strict=True)
    }
    form = max((form for form, _ in wishes), key=STRENGTH.__getitem__, default=None)
    usual = result_texts(render_blocks(entry, form, None, pruning))
    told = tuple(
        result.text if text is None else text for result, text in zip(results, texts.values(), strict=True)
    )
    return form, None if told == usual else texts


def _choose_shorter(stored: str, wished: str, held: str) -> str | None:
    """Return the shorter of a proposed text and the text shown now; None if it equals the stored text."""
    text = wished if len(wished) < len(held) else held
    return None if text == stored else text


def _by_rule(
    result: ToolResult,
    tool: str,
    rule: ToolRule | None,
    pruning: PruneStrategy,
    form_of: FormOf,
    *,
    held: str,
    fresh: bool,
) -> tuple[PruneForm | None, str]:
    if rule is not None and rule.rule == "never":
        return None, result.text
    own = pruning if rule is None else pruning.for_tool(rule)
    form = _form(result, rule, own, form_of)
    if form == "trim" and len(held) < len(result.text):
        return "trim", held  # a trimmed result is not trimmed again, only cleared later
    if fresh and _may_be_a_plug_ins(result, rule, form, pruning):
        shorter = pruning.prune_rules.prune(tool, result.text, pruning)
        if shorter is not None:
            return "trim", shorter
    return form, result.text if form is None else _shorten(result.text, form, own)


def _may_be_a_plug_ins(
    result: ToolResult, rule: ToolRule | None, form: PruneForm | None, pruning: PruneStrategy
) -> bool:
    """Return whether a plug-in may shorten the result: instead of trimming, or of clearing under rule
    `protect`.
    """
    if not pruning.is_clearable(result.text) or (rule is not None and rule.rule == "clear"):
        return False
    return form in (None, "trim") or pruning.prune_rule == "protect"


def _form(
    result: ToolResult, rule: ToolRule | None, pruning: PruneStrategy, form_of: FormOf
) -> PruneForm | None:
    match rule.rule if rule is not None else "usual":
        case "clear":
            return "clear" if pruning.is_clearable(result.text) else None
        case "trim":
            wished = form_of(result, pruning)
            long = pruning.is_long(result.text)
            return "trim" if wished is not None and long else None
        case _:
            return form_of(result, pruning)


def _render_block(
    block: ToolResult, form: PruneForm, shown: Shown | None, pruning: PruneStrategy
) -> ToolResult:
    if shown is not None and block.tool_use_id in shown:
        text = shown[block.tool_use_id]
        return block if text is None else replace(block, text=text)
    return replace(block, text=_shorten(block.text, form, pruning))


def _shorten(text: str, form: PruneForm, pruning: PruneStrategy) -> str:
    if form == "trim":
        return _trim(text, pruning)
    if form == "hide":
        return text  # whole messages are left out elsewhere; other policies show them
    if not pruning.is_clearable(text):
        return text
    words = pruning.prune_cleared if form == "clear" else pruning.prune_duplicate
    reference = reference_in(text)
    return f"{words}\n{reference}" if reference else words


def _trim(text: str, pruning: PruneStrategy) -> str:
    if not pruning.is_long(text):
        return text
    end = text[-pruning.prune_error_tail_chars :] if pruning.prune_error_tail_chars else ""
    tail = pruning.prune_error_tail_chars if _TROUBLE.search(end) else pruning.prune_tail_chars
    left_out = len(text) - pruning.prune_head_chars - tail
    mark = pruning.prune_mark.format(chars=left_out)
    if left_out <= len(mark):
        return text
    return f"{text[: pruning.prune_head_chars]}{mark}{text[len(text) - tail :]}"
