"""Puts one request together from a session's view: the agent's prompt, its policy, its model, its budget."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

from shared.core.budget import ContextBudget, budget_for
from shared.core.context import RENDERER_VERSION, BuiltContext, build_context
from shared.core.foreground import fit
from shared.core.policy import ContextPolicy
from shared.core.prompts import SystemLayers, default_layers
from shared.core.session import View
from shared.core.turns import ContextAudit
from shared.ports import ModelCard, ModelRequest, TokenCounter, ToolSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A request that may be sent, and what is known about it."""

    request: ModelRequest
    built: BuiltContext
    budget: ContextBudget
    policy: ContextPolicy
    card: ModelCard
    ratio: float
    """Real tokens per estimated token, learned for this session."""
    estimate: int
    """Tokens of the whole request, in the model's unit."""
    runtime_facts: str = ""
    instruction: str = ""
    left_out: int = 0
    """Tokens of the view that the ladder kept out of this request; they are still there."""
    before: int = 0
    """Tokens of the whole view as it was before this turn's pruning."""
    saved: int = 0
    """Of these, what this turn's pruning has saved."""
    entry_seqs: tuple[int, ...] = ()
    """The view that the request was made from, before anything of it was left out."""
    fitted_into: int | None = None
    """The size that the ladder had to reach, if it had to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompting:
    """What every agent starts from; an agent's own config may override name, model and numbers."""

    policy: ContextPolicy
    chat_model: str
    summary_model: str
    max_output: int
    counter: TokenCounter

    def model_of(self, agent_config: Mapping[str, Any]) -> str:
        return str(agent_config.get("model") or self.chat_model)

    def layers_of(self, agent_config: Mapping[str, Any]) -> SystemLayers:
        layers = default_layers()
        persona = agent_config.get("persona")
        return replace(layers, agent=str(persona)) if persona else layers

    def prepare(
        self,
        view: View,
        *,
        card: ModelCard,
        agent_config: Mapping[str, Any],
        tools: tuple[ToolSpec, ...],
        token_ratio: float,
        runtime_facts: str = "",
        instruction: str = "",
        cache_long: bool = False,
    ) -> Prepared:
        """The request for the open turn or, with an instruction, for a ghost turn after it.

        Raises ContextBudgetExceeded when system and tools alone leave no room.
        """
        offered = tools if "tools" in card.capabilities or card.offline else ()
        built = self._build(view, agent_config, offered, runtime_facts, instruction)
        ratio = ratio_of(token_ratio, card)
        longest = min(self.max_output, card.max_output)
        budget = budget_for(self.policy, card.window, longest, round(ratio * built.fixed))
        return Prepared(
            request=_request(built, offered, card, budget.out, cache_long=cache_long),
            built=built,
            budget=budget,
            policy=self.policy,
            card=card,
            ratio=ratio,
            estimate=round(ratio * built.estimate),
            runtime_facts=runtime_facts,
            instruction=instruction,
            before=round(ratio * built.estimate),
            entry_seqs=built.entry_seqs,
        )

    def shrink(
        self, prepared: Prepared, view: View, agent_config: Mapping[str, Any], *, hard: int
    ) -> Prepared:
        """The ladder's last steps, without a model; raises ContextBudgetExceeded."""
        tools = prepared.request.tools
        small = fit(
            view,
            hard=hard,
            build=lambda v: self._build(v, agent_config, tools, prepared.runtime_facts, prepared.instruction),
            count=self.counter.count,
            ratio=prepared.ratio,
            budget=prepared.budget,
            policy=prepared.policy,
        )
        left_out = max(0, prepared.built.estimate - small.context.estimate)
        return replace(
            prepared,
            built=small.context,
            estimate=round(prepared.ratio * small.context.estimate),
            left_out=prepared.left_out + round(prepared.ratio * left_out),
            fitted_into=hard,
            request=_request(
                small.context,
                tools,
                prepared.card,
                prepared.budget.out,
                cache_long=prepared.request.cache_long,
            ),
        )

    def _build(
        self,
        view: View,
        agent_config: Mapping[str, Any],
        tools: tuple[ToolSpec, ...],
        runtime_facts: str,
        instruction: str,
    ) -> BuiltContext:
        return build_context(
            view,
            policy=self.policy,
            system=self.layers_of(agent_config),
            notes=view.notes,
            runtime_facts=runtime_facts,
            tools=tools,
            instruction=instruction,
            count=self.counter.count,
        )


def _request(
    built: BuiltContext, tools: tuple[ToolSpec, ...], card: ModelCard, max_output: int, *, cache_long: bool
) -> ModelRequest:
    return ModelRequest(
        model=card.name,
        system=built.system,
        messages=built.messages,
        tools=tools,
        max_output_tokens=max_output,
        cache_at=built.cache_at,
        cache_long=cache_long,
    )


def ratio_of(learned: float, card: ModelCard) -> float:
    """1.0 is what a session begins with: nothing learned, so the model's own factor holds."""
    return card.token_factor if learned == 1.0 else learned


def prompt_parts(prepared: Prepared) -> dict[str, str]:
    """What makes the request reproducible besides its entries: sha256 in hex → text."""
    texts = [part.text for part in prepared.request.system]
    if prepared.request.tools:
        texts.append(_tools_text(tuple(prepared.request.tools)))
    texts.append(_policy_text(prepared.policy))
    return {hashlib.sha256(text.encode()).hexdigest(): text for text in texts}


@lru_cache(maxsize=64)
def _tools_text(tools: tuple[ToolSpec, ...]) -> str:
    specs = [
        {"name": tool.name, "description": tool.description, "input_schema": dict(tool.input_schema)}
        for tool in tools
    ]
    return json.dumps(specs, ensure_ascii=False)


@lru_cache(maxsize=64)
def _policy_text(policy: ContextPolicy) -> str:
    return json.dumps(asdict(policy), ensure_ascii=False)


def recipe_of(prepared: Prepared, view: View) -> dict[str, Any]:
    """What the audit's own columns do not say: with it `replaying.rebuild` makes the same request again."""
    recipe: dict[str, Any] = {
        "open": view.open_turn,
        "seqs": ranges_of(prepared.entry_seqs),
        "system": len(prepared.request.system),
        "tools": bool(prepared.request.tools),
        "max": prepared.request.max_output_tokens,
        "facts": prepared.runtime_facts,
    }
    if view.pins:
        recipe["pins"] = [entry.seq for entry in view.pins]
    if any(entry.pinned for entry in view.entries):
        recipe["pinned"] = [entry.seq for entry in view.entries if entry.pinned]
    if forms := {str(entry.seq): entry.pruned for entry in view.entries if entry.pruned}:
        recipe["forms"] = forms
    if prepared.request.cache_long:
        recipe["hour"] = True
    if prepared.fitted_into is not None:
        recipe["fit"] = {
            "into": prepared.fitted_into,
            "ratio": prepared.ratio,
            "fixed": prepared.built.fixed,
            "budget": asdict(prepared.budget),
        }
    return recipe


def ranges_of(numbers: Sequence[int]) -> list[list[int]]:
    """Numbers as `[first, last]` of each unbroken run."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return runs


def audit_of(
    prepared: Prepared,
    view: View,
    *,
    hashes: tuple[str, ...],
    reported: int | None,
    context_tokens: int,
    summary_triggered: bool = False,
    prune_triggered: bool = False,
    overflow_rejected: bool = False,
) -> ContextAudit:
    seqs = [entry.seq for entry in view.entries]
    return ContextAudit(
        model_alias=prepared.card.name,
        model_context_limit=prepared.budget.window,
        input_budget=prepared.budget.limit,
        hard_limit=prepared.budget.hard,
        estimated_before=prepared.before,
        estimated_after_summary=min(prepared.before, prepared.estimate + prepared.saved),
        estimated_after_prune=prepared.estimate,
        reported=reported,
        context_tokens=context_tokens,
        summary_triggered=summary_triggered or prepared.fitted_into is not None,
        prune_triggered=prune_triggered,
        overflow_rejected=overflow_rejected,
        parts={name: round(prepared.ratio * tokens) for name, tokens in prepared.built.parts.items()},
        part_hashes=hashes,
        entry_from=min(seqs, default=0),
        entry_through=max(seqs, default=0),
        base_turn=view.base_turn,
        head=view.head.id if view.head else None,
        prune_seqs=tuple(entry.seq for entry in view.entries if entry.pruned),
        renderer_version=RENDERER_VERSION,
        recipe=recipe_of(prepared, view) if hashes else {},
    )
