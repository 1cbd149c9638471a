"""Exact reconstruction of the model request of a stored turn."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from zoneinfo import ZoneInfo

from shared.core.context.build_context import BuiltContext, build_context
from shared.core.context.memory import KnownNotes
from shared.core.context.prompts import SystemLayers
from shared.core.overflow.overflow_recovery import fit
from shared.core.session.artifacts import can_open
from shared.core.session.failed_messages import show_failed
from shared.core.session.policy import ContextPolicy
from shared.core.session.session import Entry, FrozenPrefix, View
from shared.core.session.turns import StoredTurn
from shared.core.values.messages import ToolUse
from shared.core.values.tokens import Count
from shared.ports import ModelRequest, SystemPart, ToolSpec


class PromptPartErased(LookupError):
    """A part of the stored prompt is missing, so that the request cannot be rebuilt.

    It was erased, or the turn was refused before anything was sent.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuiltRequest:
    """Rebuilt request of a turn, with the parts from which it was built."""

    request: ModelRequest
    view: View
    policy: ContextPolicy
    recall: str
    """Recalled passages that followed the person's message in the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMemory:
    """Memory that a turn's last request contained, and names of the tools that the turn called.

    Messages of the conversation itself are not part of it.
    """

    recalled: str = ""
    newer_notes: str = ""
    """Notes that followed the person's message in the request."""
    note_ids: tuple[int, ...] = ()
    """Ids of the notes in the block before the conversation."""
    has_summary: bool = False
    tools: tuple[str, ...] = ()
    """Names of the tools that the turn called."""
    is_whole: bool = True
    """False if a part was erased later or the request was not recorded."""


def read_stored_memory(stored: StoredTurn) -> StoredMemory:
    """Return the memory that a turn's last request contained, according to its stored recipe.

    Without a recipe, as for a refused turn, the result is empty, with `is_whole` False.
    """
    recipe, hashes = stored.audit.recipe, stored.audit.part_hashes
    if not recipe or not hashes:
        return StoredMemory(is_whole=False)
    keys = list(hashes[recipe["system"] + bool(recipe["tools"]) : -1])
    newer_notes = stored.parts.get(keys[0]) if recipe.get("since") else ""
    recalled = stored.parts.get(keys[-1]) if recipe.get("recall") else ""
    turn, through = recipe["open"], stored.audit.entry_through
    blocks = [
        block
        for entry in stored.entries
        if entry.turn == turn and entry.seq <= through
        for block in entry.blocks
    ]
    return StoredMemory(
        recalled=recalled or "",
        newer_notes=newer_notes or "",
        note_ids=tuple(recipe.get("notes", ())),
        has_summary=stored.head is not None,
        tools=tuple(dict.fromkeys(block.name for block in blocks if isinstance(block, ToolUse))),
        is_whole=newer_notes is not None and recalled is not None,
    )


def rebuild_request(stored: StoredTurn, *, count: Count) -> ModelRequest:
    """Return the request of a turn's last model call, without the bytes of pictures.

    `count` must be the token counter that the turn used, so that a request that was too large is shrunk in
    the same way. Raises PromptPartErased if a stored part is missing.
    """
    return rebuild_with_parts(stored, count=count).request


def rebuild_with_parts(stored: StoredTurn, *, count: Count) -> RebuiltRequest:
    """Return the same request as `rebuild_request`, with its view, policy and recalled passages.

    Raises PromptPartErased if a stored part is missing.
    """
    audit, recipe = stored.audit, stored.audit.recipe
    texts = _texts(stored)
    system = tuple(texts[: recipe["system"]])
    tools = _tools(texts[recipe["system"]]) if recipe["tools"] else ()
    policy, view = _policy(texts[-1]), _view(stored)
    behind = texts[recipe["system"] + bool(recipe["tools"]) : -1]
    since = behind[0] if recipe.get("since") else ""
    recall = behind[-1] if recipe.get("recall") else ""
    built = _context(view, recipe, policy, count, opens=can_open(tools), recall=recall, since=since)
    request = ModelRequest(
        model=audit.model_alias,
        system=tuple(SystemPart(text=text, cache=True) for text in system),
        messages=built.messages,
        tools=tools,
        max_output_tokens=recipe["max"],
        cache_at=built.cache_at,
        behind_mark=built.behind_mark,
        cache_long=bool(recipe.get("hour")),
    )
    return RebuiltRequest(request=request, view=view, policy=policy, recall=recall)


def _context(
    view: View,
    recipe: Mapping[str, Any],
    policy: ContextPolicy,
    count: Count,
    *,
    opens: bool,
    recall: str,
    since: str,
) -> BuiltContext:
    fixed = recipe.get("fit", {}).get("fixed", 0)
    zone = ZoneInfo(recipe.get("zone", "UTC"))

    def build(shown: View) -> BuiltContext:
        made = build_context(
            shown,
            policy=policy,
            system=SystemLayers(base=""),
            recall=recall,
            known=KnownNotes(since=since),
            runtime_facts=recipe["facts"],
            zone=zone,
            count=count,
        )
        return replace(made, estimate=made.estimate - made.fixed + fixed)

    if "fit" not in recipe:
        return build(view)
    how = recipe["fit"]
    return fit(
        view,
        hard=how["into"],
        build=build,
        count=count,
        policy=policy,
        ratio=how["ratio"],
        step=how["step"],
        opens=opens,
    ).context


def _view(stored: StoredTurn) -> View:
    audit, recipe = stored.audit, stored.audit.recipe
    live = {seq for first, last in recipe["seqs"] for seq in range(first, last + 1)}
    frozen = FrozenPrefix(pins=frozenset(recipe.get("pins", ()))) if recipe.get("frozen") else None
    pins = {*recipe.get("pins", ()), *recipe.get("late_pins", ())}
    return View(
        session_id=0,
        base_turn=audit.base_turn,
        flushed_turn=0,
        view_epoch=0,
        cycle=0,
        head=stored.head,
        entries=tuple(_restore_entry(entry, recipe) for entry in stored.entries if entry.seq in live),
        pins=tuple(_restore_entry(entry, recipe) for entry in stored.entries if entry.seq in pins),
        frozen=frozen,
        open_turn=recipe["open"],
    )


def _restore_entry(entry: Entry, recipe: Mapping[str, Any]) -> Entry:
    form = recipe.get("forms", {}).get(str(entry.seq))
    kept = any(entry.seq in recipe.get(name, ()) for name in ("pinned", "pins", "late_pins"))
    pinned = kept and entry.seq not in recipe.get("corrected", ())
    shown = recipe.get("shown", {}).get(str(entry.seq))
    newly = entry.seq == recipe.get("batch")
    restored = replace(entry, pruned=form, pruned_as=shown, pruned_now=newly, pinned=pinned)
    code = recipe.get("failed", {}).get(str(entry.seq))
    return restored if code is None else show_failed(restored, code)


def _texts(stored: StoredTurn) -> list[str]:
    missing = [key for key in stored.audit.part_hashes if key not in stored.parts]
    if missing or not stored.audit.part_hashes:
        raise PromptPartErased(", ".join(missing) or "the turn was refused before anything was sent")
    return [stored.parts[key] for key in stored.audit.part_hashes]


def _tools(text: str) -> tuple[ToolSpec, ...]:
    return tuple(ToolSpec(**spec) for spec in json.loads(text))


def _policy(text: str) -> ContextPolicy:
    values = {name: _freeze(value) for name, value in json.loads(text).items()}
    return ContextPolicy(name=values.pop("name")).with_settings(**values)


def _freeze(value: Any) -> Any:
    return tuple(_freeze(item) for item in value) if isinstance(value, list) else value
