"""How a tool result looks once it is shortened, by the policy or by its tool's own rule."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from shared.core.session.artifacts import reference_in
from shared.core.session.policy import ContextPolicy
from shared.core.session.prune_rules import ToolRule
from shared.core.session.session import Entry, PruneForm
from shared.core.values.messages import Block, ToolResult, tool_results

Shown = Mapping[str, str | None]
"""Texts by call; None is a result that stays as it is stored."""
FormOf = Callable[[ToolResult, ContextPolicy], PruneForm | None]

_TROUBLE = re.compile(r"error|exception|\bfail(?:ed|ure|s)?\b|traceback|\bpanic|\bfatal", re.IGNORECASE)
STRENGTH: dict[PruneForm | None, int] = {None: 0, "trim": 1, "duplicate": 2, "clear": 3, "hide": 4}


def render_blocks(
    entry: Entry, form: PruneForm | None, shown: Shown | None, policy: ContextPolicy
) -> tuple[Block, ...]:
    """The entry's blocks under a decision; only tool results differ."""
    if form is None:
        return entry.blocks
    return tuple(
        _render_block(block, form, shown, policy) if isinstance(block, ToolResult) else block
        for block in entry.blocks
    )


def result_texts(blocks: Iterable[Block]) -> tuple[str, ...]:
    return tuple(result.text for result in tool_results(blocks))


def decision_for(
    entry: Entry, policy: ContextPolicy, names: Mapping[str, str], form_of: FormOf
) -> tuple[PruneForm | None, Shown | None]:
    """The strongest form that the entry's results call for, and their texts where a tool's own rule spoke."""
    results = tool_results(entry.blocks)
    rules = policy.prune_rules
    tools = [names.get(result.tool_use_id, "") for result in results]
    own = [rules.of(tool) for tool in tools]
    if not rules.pruners and not any(own):
        forms = [form_of(result, policy) for result in results]
        return max(forms, key=STRENGTH.__getitem__, default=None), None
    now = result_texts(render_blocks(entry, entry.pruned, entry.pruned_as, policy))
    wishes = [
        _by_rule(result, tool, rule, policy, form_of, held=held, fresh=entry.pruned is None)
        for result, tool, rule, held in zip(results, tools, own, now, strict=True)
    ]
    texts = {
        result.tool_use_id: _kept_short(result.text, text, held)
        for result, (_, text), held in zip(results, wishes, now, strict=True)
    }
    form = max((form for form, _ in wishes), key=STRENGTH.__getitem__, default=None)
    usual = result_texts(render_blocks(entry, form, None, policy))
    told = tuple(
        result.text if text is None else text for result, text in zip(results, texts.values(), strict=True)
    )
    return form, None if told == usual else texts


def _kept_short(stored: str, wished: str, held: str) -> str | None:
    """The shorter of what is wished and what is shown already; None for the whole."""
    text = wished if len(wished) < len(held) else held
    return None if text == stored else text


def _by_rule(
    result: ToolResult,
    tool: str,
    rule: ToolRule | None,
    policy: ContextPolicy,
    form_of: FormOf,
    *,
    held: str,
    fresh: bool,
) -> tuple[PruneForm | None, str]:
    if rule is not None and rule.rule == "never":
        return None, result.text
    own = policy if rule is None else _with_numbers(policy, rule)
    form = _form(result, rule, own, form_of)
    if form == "trim" and len(held) < len(result.text):
        return "trim", held  # once shortened, it waits for the day when it is cleared
    if fresh and _may_be_a_plug_ins(result, rule, form, policy):
        shorter = policy.prune_rules.prune(tool, result.text, policy)
        if shorter is not None:
            return "trim", shorter
    return form, result.text if form is None else _shorten(result.text, form, own)


def _may_be_a_plug_ins(
    result: ToolResult, rule: ToolRule | None, form: PruneForm | None, policy: ContextPolicy
) -> bool:
    """A plug-in stands in for trimming, and under rule `protect`, which never trims, for clearing."""
    if len(result.text) <= policy.prune_clear_over_chars or (rule is not None and rule.rule == "clear"):
        return False
    return form in (None, "trim") or policy.prune_rule == "protect"


def _form(
    result: ToolResult, rule: ToolRule | None, policy: ContextPolicy, form_of: FormOf
) -> PruneForm | None:
    match rule.rule if rule is not None else "usual":
        case "clear":
            return "clear" if len(result.text) > policy.prune_clear_over_chars else None
        case "trim":
            wished = form_of(result, policy)
            long = len(result.text) > policy.prune_over_chars
            return "trim" if wished is not None and long else None
        case _:
            return form_of(result, policy)


def _with_numbers(policy: ContextPolicy, rule: ToolRule) -> ContextPolicy:
    over = policy.prune_over_chars if rule.over_chars is None else rule.over_chars
    head = policy.prune_head_chars if rule.head_chars is None else rule.head_chars
    tail = policy.prune_tail_chars if rule.tail_chars is None else rule.tail_chars
    more = max(0, policy.prune_error_tail_chars - policy.prune_tail_chars)
    clear_over = policy.prune_clear_over_chars
    if rule.rule == "clear" and rule.over_chars is not None:
        clear_over = rule.over_chars
    return replace(
        policy,
        prune_over_chars=over,
        prune_head_chars=head,
        prune_tail_chars=tail,
        prune_error_tail_chars=tail + more,
        prune_clear_over_chars=clear_over,
    )


def _render_block(
    block: ToolResult, form: PruneForm, shown: Shown | None, policy: ContextPolicy
) -> ToolResult:
    if shown is not None and block.tool_use_id in shown:
        text = shown[block.tool_use_id]
        return block if text is None else replace(block, text=text)
    return replace(block, text=_shorten(block.text, form, policy))


def _shorten(text: str, form: PruneForm, policy: ContextPolicy) -> str:
    if form == "trim":
        return _trim(text, policy)
    if form == "hide":
        return text  # whole messages are left out before this; under other policies they are shown
    if len(text) <= policy.prune_clear_over_chars:
        return text
    words = policy.prune_cleared if form == "clear" else policy.prune_duplicate
    reference = reference_in(text)
    return f"{words}\n{reference}" if reference else words


def _trim(text: str, policy: ContextPolicy) -> str:
    if len(text) <= policy.prune_over_chars:
        return text
    end = text[-policy.prune_error_tail_chars :] if policy.prune_error_tail_chars else ""
    tail = policy.prune_error_tail_chars if _TROUBLE.search(end) else policy.prune_tail_chars
    left_out = len(text) - policy.prune_head_chars - tail
    mark = policy.prune_mark.format(chars=left_out)
    if left_out <= len(mark):
        return text
    return f"{text[: policy.prune_head_chars]}{mark}{text[len(text) - tail :]}"
