"""Builder of model requests from a session's view: the agent's prompt, policy, model and token budget."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from operator import attrgetter
from typing import Any, Protocol
from zoneinfo import ZoneInfo

import structlog

from shared.core.context.agents import (
    EMPTY,
    LOOK_AT_PICTURE,
    WINDOW_SHARE,
    Circumstances,
    Workspace,
    circumstances_of,
    layers_for,
    list_preferred_tools,
    pick_affordable,
    shrink,
    useful_tools,
)
from shared.core.context.build_context import (
    RENDERER_VERSION,
    BuiltContext,
    Selection,
    build_context,
    is_late_pin,
    select,
)
from shared.core.context.memory import NOTHING_KNOWN, KnownNotes, build_known_notes
from shared.core.context.overrides import BadContextConfig, agent_policy
from shared.core.context.prompts import SystemLayers
from shared.core.memory.recall import NOTHING_RECALLED, Recalled
from shared.core.overflow.overflow_recovery import HIDDEN_AT_ONCE, fit
from shared.core.session.artifacts import Artifact, can_open
from shared.core.session.budget import ContextBudget, budget_for
from shared.core.session.policy import ContextPolicy
from shared.core.session.prune_rules import BadPruneRules, Pruner, PruneRules, prune_rules
from shared.core.session.session import Entry, View, list_corrections
from shared.core.session.session_state import SessionState
from shared.core.session.turns import Claim, ContextAudit
from shared.core.values.local_time import resolve_zone
from shared.core.values.messages import Image, ToolUse
from shared.core.values.token_scale import Estimates, TokenScale, scale_from_json
from shared.core.values.tokens import estimate_blocks, estimate_tools
from shared.core.values.ttl_cache import ttl_cache
from shared.ports import ModelCard, ModelRequest, TokenCounter, ToolSpec

log = structlog.get_logger(__name__)

_SEQ: Callable[[Entry], int] = attrgetter("seq")
_PINNED: Callable[[Entry], bool] = attrgetter("pinned")
_POLICY_SECTIONS = ("preset", "context", "pruning")
MAX_CACHED_POLICIES = 256
"""Most agent policies that a process caches; a full cache is cleared."""
LONG_CHARS = 4_000
"""Characters above which the token count of a text is cached, since every call of a turn needs it."""
MAX_CACHED_TEXTS = 64
"""Most long texts whose token count is cached."""
RECALL_MOST = 4_000
"""Most estimated tokens of recalled passages, also if an agent's number is larger."""
RECALL_SHARE = 0.05
"""Largest share of the used window for recalled passages."""
WORKSPACE_SHARE = 0.2
"""Largest share of the window for workspace files; longer files are cut, so that the turn is not refused."""


class WorkspaceSource(Protocol):
    """Source of agents' workspace files."""

    def load(self, folder: str) -> Workspace:
        """Return the folder's files as they were last read, and watch the folder. Never raises."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRequest:
    """Request that is ready to be sent, with its sizes and the settings used to build it."""

    request: ModelRequest
    built: BuiltContext
    budget: ContextBudget
    policy: ContextPolicy
    card: ModelCard
    ratio: float
    """Model's tokens per estimated token, as learned in this session."""
    estimate: int
    """Tokens of the whole request, as the model counts them."""
    runtime_facts: str = ""
    instruction: str = ""
    left_out: int = 0
    """Tokens of the view that this request leaves out to fit into the window; the log keeps them."""
    talk: int | None = None
    """Estimated tokens of the messages, if their stored sizes are the provider's counts; None if those are
    estimates.
    """
    kept_out: Estimates = field(default_factory=dict)
    """Estimated tokens of `left_out` by kind of text; negative if a kind became longer."""
    before: int = 0
    """Tokens of the whole view before this turn's summary and pruning."""
    saved: int = 0
    """Tokens that this turn's pruning removed from `before`."""
    entry_seqs: tuple[int, ...] = ()
    """`seq` of the entries that the request was built from, before any was left out."""
    fitted_into: int | None = None
    """Token limit that the request was shrunk to; None if it was not shrunk."""
    artifacts: tuple[tuple[int, Artifact], ...] = ()
    """Artifacts that the request mentions, with the `seq` of their entry.

    Store them before sending the request.
    """
    selection: Selection
    """Entries that the policy sends; entries that it leaves out do not count as context."""
    channel: str | None = None
    recalled: Recalled = NOTHING_RECALLED
    known: KnownNotes = NOTHING_KNOWN
    circumstances: Circumstances = field(default_factory=Circumstances)
    zone: str = "UTC"
    """Time zone of the dates in the request."""
    recall_room: int = 0
    """Estimated tokens reserved for recalled passages; 0 if no turn is hidden."""

    @property
    def pictures(self) -> tuple[Image, ...]:
        """Pictures in the request whose bytes must be loaded."""
        blocks = (block for message in self.request.messages for block in message.blocks)
        return tuple(block for block in blocks if isinstance(block, Image))

    @property
    def reserved(self) -> int:
        """Tokens kept free for recalled passages, as the model counts them; 0 if no turn is hidden."""
        return round(self.ratio * self.recall_room)

    @property
    def estimates(self) -> Estimates:
        """Estimated tokens by kind of text. The program's own facts count as `steady`, like the prompt."""
        parts, built = self.built.parts, self.built
        return {
            "steady": parts["system"] + parts["tools"] + built.facts,
            "notes": parts["memory"] - built.volatile,
            "summary": parts["summary"],
            "talk": parts["history"] if self.talk is None else self.talk,
            "passing": built.volatile - built.facts,
        }

    @property
    def passing(self) -> Estimates:
        """Estimated tokens by kind of text that only this turn's requests contain."""
        return {"steady": self.built.facts, "passing": self.built.volatile - self.built.facts}

    def ratio_of_stored(self, scale: TokenScale) -> float:
        """Return the model's tokens per stored token of messages."""
        return scale.ratio("talk") if self.talk is None else self.ratio

    def read_scale(self, stored: Mapping[str, Any]) -> TokenScale:
        """Return the stored ratios of this model's tokens to estimated ones, by kind of text."""
        return scale_from_json(stored, self.card.name, ratio=self.ratio)

    @property
    def unsent(self) -> int:
        """Tokens of the live view that the policy leaves out of every request, as the model counts them."""
        return round(self.ratio * self.selection.tokens_left_out)

    @property
    def hidden_at_once(self) -> int:
        """Estimated tokens that shrinking hides in one step.

        It uses the model's fixed factor, since the learned ratio would shift the steps with each turn.
        """
        return int(HIDDEN_AT_ONCE * self.budget.hard / self.card.token_factor)

    def with_answer_room(self) -> PreparedRequest:
        """Return the request with its maximum answer set to the tokens that the window leaves beside
        `estimate`.

        Call it after `estimate` is final.
        """
        longest = self.budget.answer_beside(self.estimate)
        if longest == self.request.max_output_tokens:
            return self
        return replace(self, request=replace(self.request, max_output_tokens=longest))


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestBuilder:
    """Builder of requests with the deployment's defaults; an agent's configuration may override them."""

    policy: ContextPolicy
    """Policy of the deployment; `resolve_policy` returns an agent's."""
    chat_model: str
    summary_model: str
    max_output: int
    counter: TokenCounter
    context_window: int | None = None
    """Operator's limit of the window in tokens, for presets that agents choose; None sets none."""
    operator_policy: Mapping[str, Any] = field(default_factory=dict)
    """Operator's policy settings, which also apply to presets that agents choose."""
    pruners: tuple[Pruner, ...] = ()
    """Plug-in functions that shorten tool results."""
    workspaces: WorkspaceSource | None = None
    fallbacks: Callable[[str], tuple[str, ...]] = lambda _model: ()
    """Function that returns the fallback models of a model, in order."""
    timezone: str = "UTC"
    """Time zone of people whose time zone is unknown."""
    trusts_visitors: bool = False
    """True if anonymous visitors of the widget are treated as the owner of this installation."""

    _policies: dict[str, ContextPolicy] = field(default_factory=dict)
    _logged: set[tuple[str, tuple[str, ...]]] = field(default_factory=set)
    """Models with left-out tools that were already logged, so that a process logs each once."""

    def resolve_policy(self, agent_config: Mapping[str, Any]) -> ContextPolicy:
        """Return the policy of an agent, which is cached; the deployment's if the agent sets none or an
        invalid one.

        Invalid settings are logged.
        """
        if not (self.pruners or any(map(agent_config.get, _POLICY_SECTIONS))):
            return self.policy
        asked = {name: agent_config.get(name) for name in _POLICY_SECTIONS}
        key = json.dumps(asked, sort_keys=True, default=str)
        if key not in self._policies:
            if len(self._policies) >= MAX_CACHED_POLICIES:
                self._policies.clear()
            rules = _rules(json.dumps(asked["pruning"], sort_keys=True, default=str), self.pruners)
            self._policies[key] = self._resolve_own_policy(agent_config).with_settings(prune_rules=rules)
        return self._policies[key]

    def _resolve_own_policy(self, agent_config: Mapping[str, Any]) -> ContextPolicy:
        try:
            return agent_policy(
                self.policy, agent_config, context_window=self.context_window, given=self.operator_policy
            )
        except BadContextConfig as error:
            log.warning("agent_context_invalid", problems=list(error.problems), used=self.policy.name)
            return self.policy

    def policy_for(self, agent_config: Mapping[str, Any], card: ModelCard) -> ContextPolicy:
        """Return the agent's policy adapted to the model's abilities.

        For a model without vision, pictures are replaced by descriptions at once. A model that also writes
        the summaries saves memory in the same call.
        """
        return _policy_for_model(
            self.resolve_policy(agent_config),
            summarises=card.name == self.summary_model,
            sees="images" in card.capabilities,
        )

    def recall_limit(self, agent_config: Mapping[str, Any], window: int) -> int:
        """Return the most estimated tokens that recall may add to a turn.

        It is the agent's number, else the policy's, at most 4,000 and 5 percent of `window`.
        """
        memory = agent_config.get("memory")
        own = memory.get("recall_tokens") if isinstance(memory, Mapping) else None
        tokens = self.resolve_policy(agent_config).keeping.choose_recall(own)
        return min(tokens, RECALL_MOST, int(RECALL_SHARE * window))

    def resolve_model(self, agent_config: Mapping[str, Any]) -> str:
        """Return the name of the agent's chat model; the deployment's if the agent names none."""
        return str(agent_config.get("model") or self.chat_model)

    def load_circumstances(self, whose: Claim | SessionState, view: View | None = None) -> Circumstances:
        """Return what a request depends on besides the log, such as time zone, group and workspace.

        `whose` is the claim of a turn or, for background calls, the session; `view` replaces the view of
        `whose`, unless None. Call it once per turn, since files may change during a turn and the cached
        prefix must not.
        """
        files = self.load_workspace(whose.agent_config)
        return circumstances_of(whose, view, workspace=files, trusts_visitors=self.trusts_visitors)

    def load_workspace(self, agent_config: Mapping[str, Any]) -> Workspace:
        """Return the files of the agent's workspace folder; empty if it has none."""
        folder = agent_config.get("workspace")
        if self.workspaces is None or not isinstance(folder, str) or not folder:
            return EMPTY
        return self.workspaces.load(folder)

    def build_layers(
        self, agent_config: Mapping[str, Any], circumstances: Circumstances | None = None
    ) -> SystemLayers:
        """Return the system text of an agent in layers; None as `circumstances` stands for empty ones."""
        return layers_for(agent_config, circumstances or Circumstances())

    def zone_of(self, circumstances: Circumstances) -> ZoneInfo:
        """Return the time zone in which the conversation's dates are written."""
        return resolve_zone(circumstances.timezone, self.timezone)

    def known_notes(self, view: View, zone: ZoneInfo) -> KnownNotes:
        """Return the notes that a request shows: the block that the provider may have cached, and the changes
        since.

        Dates are written in `zone`.
        """
        return build_known_notes(view.notes, view.frozen, count=self.counter.count_tokens, zone=zone)

    def _with_room(self, at: Circumstances, window: int) -> Circumstances:
        tokens = sum(self.estimate_tokens(text) for _, text in at.workspace.files)
        most = WORKSPACE_SHARE * window
        if tokens <= most:
            return at
        return replace(at, workspace=shrink(at.workspace, most / tokens))

    def estimate_tokens(self, text: str) -> int:
        """Return the estimated tokens of a text; counts of long texts are cached."""
        if len(text) <= LONG_CHARS:
            return self.counter.count_tokens(text)
        return _size_of_long(self.counter, text)

    def build(
        self,
        view: View,
        *,
        card: ModelCard,
        agent_config: Mapping[str, Any],
        tools: tuple[ToolSpec, ...],
        token_ratio: float,
        runtime_facts: str = "",
        instruction: str = "",
        channel: str | None = None,
        cache_long: bool = False,
        recalled: Recalled = NOTHING_RECALLED,
        circumstances: Circumstances | None = None,
    ) -> PreparedRequest:
        """Return the request for the open turn or, with an `instruction`, for a background call after it;
        nothing is sent.

        `channel` decides how much history is sent. `token_ratio` is the model's tokens per estimated token,
        1.0 if none was learned. `cache_long` has the provider cache for an hour. `recalled` are passages for
        this turn only. Raises NoRoom if system text and tools leave no room for a conversation.
        """
        ratio, policy = choose_token_ratio(token_ratio, card), self.policy_for(agent_config, card)
        # A background call offers the tools of the turn before it.
        wanted = tools if instruction else useful_tools(tools, has_notes=bool(view.notes))
        offered = self._choose_offered(wanted, card, policy, view, agent_config)
        chosen = select(view, policy, channel=channel, ratio=ratio, unread=bool(instruction))
        window = policy.usable_window(card.window)
        at = self._with_room(circumstances or Circumstances(), int(window / card.token_factor))
        known = self.known_notes(view, self.zone_of(at))
        built = self._build_context(
            chosen.view, policy, agent_config, offered, runtime_facts, instruction, recalled, known, at
        )
        recall = self.recall_limit(agent_config, window)
        budget = replace(
            budget_for(policy, card.window, card.max_output, round(ratio * built.fixed)),
            recall=round(ratio * recall),
        )
        estimate = round(ratio * built.estimate)
        longest = budget.answer_beside(estimate)
        return PreparedRequest(
            request=_request(built, offered, card, longest, cache_long=cache_long, about=_build_about(view)),
            built=built,
            budget=budget,
            policy=policy,
            card=card,
            ratio=ratio,
            estimate=estimate,
            runtime_facts=runtime_facts,
            instruction=instruction,
            selection=chosen,
            channel=channel,
            circumstances=at,
            before=estimate,
            entry_seqs=built.entry_seqs,
            zone=self.zone_of(at).key,
            recalled=recalled,
            known=known,
            recall_room=recall if view.base_turn else 0,
            talk=self._estimate_talk(chosen.view, policy),
        )

    def build_next(
        self, state: SessionState, *, card: ModelCard, tools: tuple[ToolSpec, ...]
    ) -> PreparedRequest:
        """Return the request that the session would send now, before a new message; it is used for sizes, not
        sent.

        Raises NoRoom if system text and tools leave no room for a conversation.
        """
        return self.build(
            state.view,
            card=card,
            agent_config=state.agent_config,
            tools=tools,
            token_ratio=find_learned_ratio(state, card.name),
            channel=state.channel,
            circumstances=self.load_circumstances(state),
        )

    def shrink(
        self, prepared: PreparedRequest, view: View, agent_config: Mapping[str, Any], *, hard: int
    ) -> PreparedRequest:
        """Return the request shrunk to at most `hard` tokens by cutting and leaving out old content; no model
        is called.

        The caller stores the result's `artifacts` before sending it. Raises ContextBudgetExceeded if what
        must stay does not fit.
        """
        tools, recalled, known = prepared.request.tools, prepared.recalled.shortened, prepared.known
        unread = bool(prepared.instruction)
        chosen = select(view, prepared.policy, channel=prepared.channel, ratio=prepared.ratio, unread=unread)
        facts, instruction = prepared.runtime_facts, prepared.instruction
        small = fit(
            chosen.view,
            hard=hard,
            build=lambda v: self._build_context(
                v,
                prepared.policy,
                agent_config,
                tools,
                facts,
                instruction,
                recalled,
                known,
                prepared.circumstances,
            ),
            count=self.counter.count_tokens,
            policy=prepared.policy,
            ratio=prepared.ratio,
            step=prepared.hidden_at_once,
            opens=can_open(tools) and not prepared.instruction,
        )
        left_out = max(0, prepared.built.estimate - small.context.estimate)
        estimate = round(prepared.ratio * small.context.estimate)
        talk = self._estimate_talk(small.view, prepared.policy)
        shrunk = replace(prepared, built=small.context, talk=talk)
        kept_out: Estimates = {
            kind: prepared.kept_out.get(kind, 0) + tokens - shrunk.estimates[kind]
            for kind, tokens in prepared.estimates.items()
        }
        return replace(
            prepared,
            talk=talk,
            kept_out=kept_out,
            built=small.context,
            estimate=estimate,
            left_out=prepared.left_out + round(prepared.ratio * left_out),
            selection=chosen,
            recalled=recalled,
            fitted_into=hard,
            artifacts=tuple((cut.seq, cut.artifact) for cut in small.cut_short if cut.artifact is not None),
            request=_request(
                small.context,
                tools,
                prepared.card,
                prepared.budget.answer_beside(estimate),
                cache_long=prepared.request.cache_long,
                about=_build_about(view),
            ),
        )

    def _estimate_talk(self, view: View, policy: ContextPolicy) -> int | None:
        if not policy.stores_exact_answers:
            return None
        return sum(estimate_blocks(entry.blocks, self.estimate_tokens) for entry in view.entries)

    def _choose_offered(
        self,
        tools: tuple[ToolSpec, ...],
        card: ModelCard,
        policy: ContextPolicy,
        view: View,
        agent_config: Mapping[str, Any],
    ) -> tuple[ToolSpec, ...]:
        """Return the tools to offer: the same for all requests of a conversation to this model.

        If not all fit into their share of the window, tools that the conversation has used come first; those
        were offered before, so using one never changes the list.
        """
        if not tools or not ("tools" in card.capabilities or card.offline):
            return ()
        if card.callable_tools is not None:
            tools = tuple(tool for tool in tools if tool.name in card.callable_tools)
        if "images" not in card.capabilities:
            tools = tuple(tool for tool in tools if tool.name != LOOK_AT_PICTURE.name)
        window = policy.usable_window(card.window)
        most, count = int(WINDOW_SHARE * window / card.token_factor), self.counter.count_tokens
        if estimate_tools(tools, count) <= most:
            return tools
        preferred = list_preferred_tools(agent_config, sorted(_used_tools(view)))
        offered = pick_affordable(tools, most, count, preferred)
        left_out = tuple(tool.name for tool in tools if tool not in offered)
        if (card.name, left_out) not in self._logged:
            if len(self._logged) >= MAX_CACHED_POLICIES:
                self._logged.clear()
            self._logged.add((card.name, left_out))
            log.warning("tools_left_out", model=card.name, window=window, room_tokens=most, tools=left_out)
        return offered

    def _build_context(
        self,
        view: View,
        policy: ContextPolicy,
        agent_config: Mapping[str, Any],
        tools: tuple[ToolSpec, ...],
        runtime_facts: str,
        instruction: str,
        recalled: Recalled,
        known: KnownNotes,
        circumstances: Circumstances,
    ) -> BuiltContext:
        return build_context(
            view,
            policy=policy,
            system=self.build_layers(agent_config, circumstances),
            known=known,
            recall=recalled.text,
            runtime_facts=runtime_facts,
            tools=tools,
            instruction=instruction,
            zone=self.zone_of(circumstances),
            count=self.estimate_tokens,
        )


@lru_cache(maxsize=64)
def _rules(section: str, pruners: tuple[Pruner, ...]) -> PruneRules:
    """Return the pruning rules in a JSON section; invalid rules are logged once and ignored."""
    try:
        return prune_rules(json.loads(section), pruners)
    except BadPruneRules as error:
        log.warning("prune_rules_ignored", reason=str(error))
        return PruneRules(pruners=pruners)


def _build_about(view: View) -> tuple[int, int]:
    return view.session_id, view.open_turn or 0


def _request(
    built: BuiltContext,
    tools: tuple[ToolSpec, ...],
    card: ModelCard,
    max_output: int,
    *,
    cache_long: bool,
    about: tuple[int, int],
) -> ModelRequest:
    return ModelRequest(
        model=card.name,
        system=built.system,
        messages=built.messages,
        tools=tools,
        max_output_tokens=max_output,
        cache_at=built.cache_at,
        behind_mark=built.behind_mark,
        cache_long=cache_long,
        about=about,
    )


def find_learned_ratio(state: SessionState, model: str) -> float:
    """Return the session's learned tokens of this model per estimated token; 1.0 if another model was
    measured.
    """
    return state.token_ratio if state.measured_by in ("", model) else 1.0


def choose_token_ratio(learned: float, card: ModelCard) -> float:
    """Return the learned token ratio, or the model's own factor if it is 1.0, which means that none was
    learned.
    """
    return card.token_factor if learned == 1.0 else learned


def collect_prompt_parts(prepared: PreparedRequest) -> dict[str, str]:
    """Return the texts that reproduce the request besides its entries, by SHA-256 in hex.

    Their order is: system texts, tools as JSON, newer notes, recalled passages, policy as JSON; empty ones
    are left out.
    """
    texts = [part.text for part in prepared.request.system]
    if prepared.request.tools:
        texts.append(_tools_text(tuple(prepared.request.tools)))
    if prepared.known.since:
        texts.append(prepared.known.since)
    if prepared.recalled.text:
        texts.append(prepared.recalled.text)
    texts.append(_policy_text(prepared.policy))
    return {_key_of(text): text for text in texts}


@ttl_cache(MAX_CACHED_TEXTS)
def _size_of_long(counter: TokenCounter, text: str) -> int:
    return counter.count_tokens(text)


@ttl_cache(64)
def _key_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@lru_cache(maxsize=64)
def _tools_text(tools: tuple[ToolSpec, ...]) -> str:
    specs = [
        {
            "name": tool.name,
            "description": tool.description,
            "input_schema": dict(tool.input_schema),
            **({"provider": dict(tool.provider)} if tool.provider is not None else {}),
        }
        for tool in tools
    ]
    # Keep the order of the request: it may be rebuilt from this, and the provider's cache compares bytes.
    return json.dumps(specs, ensure_ascii=False)


@lru_cache(maxsize=64)
def _policy_text(policy: ContextPolicy) -> str:
    # Rules of tools are left out: the form of each shortened result is stored with its decision.
    return json.dumps({"name": policy.name, **policy.to_settings()}, ensure_ascii=False)


@lru_cache(256)
def _policy_for_model(policy: ContextPolicy, *, summarises: bool, sees: bool) -> ContextPolicy:
    return policy.for_model(sees=sees, summarises=summarises)


def build_recipe(prepared: PreparedRequest, view: View) -> dict[str, Any]:
    """Return the JSON object that `rebuild_request` needs besides the columns of the audit."""
    sent = prepared.selection.view
    recipe: dict[str, Any] = {
        "open": view.open_turn,
        "seqs": to_ranges(prepared.entry_seqs),
        "system": len(prepared.request.system),
        "tools": bool(prepared.request.tools),
        "max": prepared.request.max_output_tokens,
        "facts": prepared.runtime_facts,
    }
    if prepared.zone != "UTC":
        recipe["zone"] = prepared.zone
    if sent.pins:
        recipe |= _recipe_of_pins(sent)
    recipe |= _recipe_of_marks(sent)
    if pruned := [entry for entry in sent.entries if entry.pruned]:
        recipe["forms"] = {str(entry.seq): entry.pruned for entry in pruned}
        if shown := {str(entry.seq): dict(entry.pruned_as) for entry in pruned if entry.pruned_as}:
            recipe["shown"] = shown
        if batch := [entry.seq for entry in pruned if entry.pruned_now]:
            recipe["batch"] = batch[0]
    if prepared.known.ids:
        recipe["notes"] = list(prepared.known.ids)
    if prepared.known.since:
        recipe["since"] = True
    if prepared.request.cache_long:
        recipe["hour"] = True
    if prepared.recalled.text:
        recipe["recall"] = True
    if prepared.fitted_into is not None:
        recipe["fit"] = {
            "into": prepared.fitted_into,
            "ratio": prepared.ratio,
            "fixed": prepared.built.fixed,
            "step": prepared.hidden_at_once,
        }
    return recipe


def _recipe_of_marks(sent: View) -> dict[str, Any]:
    """Return the pinned live entries, and error codes of failed ones, for the recipe."""
    marks: dict[str, Any] = {}
    if any(map(_PINNED, sent.entries)):
        marks["pinned"] = [entry.seq for entry in sent.entries if entry.pinned]
    if failed := {str(entry.seq): entry.failed for entry in (*sent.entries, *sent.pins) if entry.failed}:
        marks["failed"] = failed
    return marks


def _recipe_of_pins(sent: View) -> dict[str, Any]:
    late = [entry.seq for entry in sent.pins if is_late_pin(entry, sent)]
    early = [entry.seq for entry in sent.pins if entry.seq not in late]
    corrected = [entry.seq for entry in list_corrections(sent)]
    recipe = {"pins": early, "late_pins": late} | ({} if sent.frozen is None else {"frozen": True})
    return recipe | ({"corrected": corrected} if corrected else {})


def to_ranges(numbers: Sequence[int]) -> list[list[int]]:
    """Return the numbers as ranges `[first, last]`, one for each unbroken run."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return runs


def build_audit(
    prepared: PreparedRequest,
    view: View,
    *,
    hashes: tuple[str, ...],
    reported: int | None,
    context_tokens: int,
    summary_triggered: bool = False,
    prune_triggered: bool = False,
    overflow_rejected: bool = False,
    model_ms: int | None = None,
) -> ContextAudit:
    """Return the record of what a model call received; the caller stores it with the turn.

    `hashes` name the stored prompt parts; without any, the record holds no recipe to rebuild the request.
    `reported` is the input tokens that the provider counted, None if unknown. `context_tokens` is the size of
    the context after the call; `model_ms` the milliseconds of all model calls of the turn, None if there was
    none.
    """
    sent = prepared.selection.view.entries
    seqs = tuple(map(_SEQ, sent))
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
        recipe=build_recipe(prepared, view) if hashes else {},
        model_ms=model_ms,
    )


def _used_tools(view: View) -> frozenset[str]:
    """Return the names of the tools that the live part of a conversation has called."""
    return frozenset(
        block.name for entry in view.entries for block in entry.blocks if isinstance(block, ToolUse)
    )
