"""Commands that set the assistant's behaviour in one conversation, such as `/goal`, `/mode` and `/model`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from shared.core.commands.texts import bullets, choices, escape, excerpt
from shared.core.context.agents import GOAL_CHARS, join_lines, models_of, modes_of, with_chosen_model
from shared.core.values.speech import SPEECH_CHOICES
from shared.services.commands.command_call import (
    Choice,
    CommandHandler,
    CommandInvocation,
    CommandReply,
    Offering,
)
from shared.services.turns.request_builder import RequestBuilder

NONE = "-"
"""Argument that restores the default of a setting."""
_DASHES = frozenset({NONE, "\N{EN DASH}", "\N{EM DASH}"})
"""Arguments that restore the default; phones turn a hyphen into a dash."""


class ChosenSettings(Protocol):
    """Settings that people chose in a conversation, "" for the default, and the configuration of its
    agent.
    """

    @property
    def goal(self) -> str: ...
    @property
    def mode(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def voice(self) -> str: ...
    @property
    def agent_config(self) -> Mapping[str, Any]: ...


class SessionSettingsStore(Protocol):
    """Store of the settings that people choose in a conversation; "" restores the default.

    `load_chosen` raises UnknownSession.
    """

    async def load_chosen(self, session_id: int) -> ChosenSettings: ...
    async def choose_goal(self, session_id: int, goal: str) -> None: ...
    async def choose_mode(self, session_id: int, mode: str) -> None: ...
    async def choose_voice(self, session_id: int, choice: str) -> None: ...
    async def choose_model(self, session_id: int, model: str) -> None:
        """Store the model chosen for a session; empty restores the agent's own model.

        A change raises the view's epoch, so that jobs planned for the former model are planned again.
        """
        ...


class SettingsCommands:
    """Handlers of `/goal`, `/mode`, `/model`, `/voice` and `/settings`."""

    def __init__(self, *, store: SessionSettingsStore, requests: RequestBuilder, speaks: bool) -> None:
        self._store = store
        self._speaks = speaks
        self._requests = requests

    @property
    def handlers(self) -> dict[str, CommandHandler]:
        """Handlers of the commands by command name."""
        return {
            "goal": self._goal, "mode": self._mode, "model": self._model, "voice": self._voice,
            "settings": self._settings,
        }  # fmt: skip

    async def _goal(self, call: CommandInvocation) -> CommandReply:
        texts, words = call.texts, join_lines(call.args)
        if not words:
            goal = (await self._store.load_chosen(call.session_id)).goal
            return True, texts.say("goal", words=escape(goal)) if goal else texts.say("no_goal")
        if words in _DASHES:
            await self._store.choose_goal(call.session_id, "")
            return True, texts.say("goal_cleared")
        if len(words) > GOAL_CHARS:
            return False, texts.say("goal_too_long", count=len(words), most=GOAL_CHARS)
        await self._store.choose_goal(call.session_id, words)
        return True, texts.say("goal_set", words=escape(words))

    async def _mode(self, call: CommandInvocation) -> CommandReply:
        chosen = await self._store.load_chosen(call.session_id)
        modes = list(modes_of(chosen.agent_config))
        if not call.args:
            now = _find_mode(chosen)
            return True, _choose(call.texts.say("modes", mode=now, modes=choices(modes)), modes, now=now)
        found = modes[0] if call.args in _DASHES else _match_name(call.args, modes)
        if found is None:
            words = call.texts.say("mode_unknown", name=excerpt(call.args), modes=choices(modes))
            return False, _choose(words, modes)
        await self._store.choose_mode(call.session_id, found)
        return True, call.texts.say("mode_set", mode=found)

    async def _model(self, call: CommandInvocation) -> CommandReply:
        chosen = await self._store.load_chosen(call.session_id)
        own = self._requests.resolve_model(chosen.agent_config)
        models = _list_choices(chosen, own)
        if not call.args:
            now = self._find_model(chosen)
            key = "models" if models else "models_only"
            words = call.texts.say(key, model=choices([now]), models=choices(models))
            return True, _choose(words, models, now=now)
        found = own if call.args in _DASHES else _match_name(call.args, models)
        if found is None:
            key = "model_unknown" if models else "model_unknown_no_choice"
            words = call.texts.say(key, name=excerpt(call.args), models=choices(models))
            return False, _choose(words, models)
        await self._store.choose_model(call.session_id, "" if found == own else found)
        return True, call.texts.say("model_set", model=choices([found]))

    async def _voice(self, call: CommandInvocation) -> CommandReply:
        if not self._speaks:
            return False, call.texts.say("voice_unavailable")
        wanted = call.args.casefold()
        if not wanted:
            now = (await self._store.load_chosen(call.session_id)).voice
            return True, _choose(call.texts.say(f"voice_{now}"), SPEECH_CHOICES, now=now)
        if wanted not in SPEECH_CHOICES:
            return False, _choose(call.texts.say("voice_unknown"), SPEECH_CHOICES)
        await self._store.choose_voice(call.session_id, wanted)
        return True, call.texts.say(f"voice_{wanted}")

    async def _settings(self, call: CommandInvocation) -> CommandReply:
        chosen = await self._store.load_chosen(call.session_id)
        models = _list_choices(chosen, self._requests.resolve_model(chosen.agent_config))
        say, modes = call.texts.say, choices(list(modes_of(chosen.agent_config)))
        lines = [
            say("settings_goal" if chosen.goal else "settings_no_goal", goal=escape(join_lines(chosen.goal))),
            say("settings_mode", mode=_find_mode(chosen), modes=modes),
            say(
                "settings_models" if models else "settings_model",
                model=choices([self._find_model(chosen)]), models=choices(models),
            ),
        ]  # fmt: skip
        return True, f"{say('settings_head')}\n\n{bullets(lines)}"

    def _find_model(self, chosen: ChosenSettings) -> str:
        return self._requests.resolve_model(with_chosen_model(chosen.agent_config, chosen.model))


def _choose(words: str, names: Sequence[str], *, now: str = "") -> Offering:
    return Offering(words, (Choice(label=name, args=name) for name in names if name != now))


def _find_mode(chosen: ChosenSettings) -> str:
    """Return the mode in force; a mode that the agent no longer has counts as its first one."""
    modes = modes_of(chosen.agent_config)
    return chosen.mode if chosen.mode in modes else next(iter(modes))


def _list_choices(chosen: ChosenSettings, own: str) -> tuple[str, ...]:
    """Return the models to choose from, the agent's own included; empty if the agent offers no choice."""
    models = models_of(chosen.agent_config)
    return models if own in models or not models else (own, *models)


def _match_name(word: str, names: Sequence[str]) -> str | None:
    return next((name for name in names if name.casefold() == word.strip().casefold()), None)
