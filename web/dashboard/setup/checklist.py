"""The checklist of the first days: what is set up, what is not, and what has broken."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from shared.adapters.files.archive import shares_disk
from shared.adapters.models.offline import OFFLINE_MODEL
from shared.adapters.postgres.dashboard.read_models import Insights
from shared.adapters.postgres.dashboard.telegram import BotState, PostgresTelegramBots
from shared.adapters.postgres.people.operator_auth import Operators
from shared.config.settings import Settings, find_setting_sources
from web.dashboard.access import AuthedRequest
from web.rest.kinds import DONE, Success
from web.rest.operation import OperationRouter

router = OperationRouter()
State = Literal["done", "todo", "broken"]
StepName = Literal["model", "try", "telegram", "widget", "account", "backups"]
_OUTSIDE = ("environment", "file")
"""Sources outside the database; stored values are read from the database, which is newer than this
process.
"""
_PROVIDER_ALERTS = {"provider_refused", "breaker_open"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChecklistStep:
    """Step of setting up, and its state."""

    name: StepName
    state: State


@dataclass(frozen=True, slots=True, kw_only=True)
class Checklist:
    hidden: bool
    steps: list[ChecklistStep]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChecklistHandlers:
    """Handlers of the checklist."""

    settings: Settings
    insights: Insights
    telegram_bots: PostgresTelegramBots
    demo: bool
    operators: Operators

    @router.on("GET /checklist", role="admin")
    async def see_checklist(self, authed: AuthedRequest) -> Checklist:
        """Get the set-up checklist.

        `hidden` is true while an operator has hidden it and every step works.
        """
        found = await self.insights.load_checklist(authed.operator.operator_id, demo_model=OFFLINE_MODEL)
        bots = await self.telegram_bots.list_bots()
        alerts = set(found["alerts"])
        states: dict[StepName, State] = {
            "model": _state(not self.demo, broken=bool(alerts & _PROVIDER_ALERTS)),
            "try": _state(found["answered"]),
            "telegram": _of_telegram(found["token"], bots),
            "widget": _of_widget(found, self.settings),
            "account": _state(
                authed.operator.by_provider or (authed.operator.has_password and found["factor"])
            ),
            "backups": _state(
                await asyncio.to_thread(_are_elsewhere, self.settings), broken="no_backup" in alerts
            ),
        }
        return Checklist(
            hidden=found["hidden"] and "broken" not in states.values(),
            steps=[ChecklistStep(name=name, state=state) for name, state in states.items()],
        )

    @router.on("PUT /checklist", role="admin", refusals=())
    async def hide_checklist(self, authed: AuthedRequest, *, hidden: bool) -> Success:
        """Hide or show the checklist.

        A hidden checklist returns as soon as a step breaks.
        """
        await self.operators.hide_checklist(authed.operator.operator_id, on=hidden)
        return DONE


def _state(done: bool, *, broken: bool = False) -> State:
    return "broken" if broken else "done" if done else "todo"


def _of_telegram(stored: bool, bots: list[BotState]) -> State:
    """Return the state of the Telegram step: broken if bots are known but no process serves one.

    A bot that has never reached Telegram was only just set up, and a missing token is no fault.
    """
    sources = find_setting_sources()
    given = any(sources[field] in _OUTSIDE for field in ("telegram_bot_token", "telegram_bots_file"))
    wanted = stored or given
    serving = any(bot.served_by is not None for bot in bots)
    return _state(wanted and serving, broken=wanted and bool(bots) and not serving)


def _of_widget(found: Mapping[str, Any], settings: Settings) -> State:
    done = found["embedded"] or bool(settings.allowed_origins)
    return _state(done, broken=not done and found["refused"])


def _are_elsewhere(settings: Settings) -> bool:
    """Return whether backups, or copies of them, lie on another disk than the data."""
    copies = settings.backup_copy_dir
    if copies is not None and copies.is_dir() and not shares_disk(copies, settings.data_dir):
        return True
    return settings.backup_dir is not None and not shares_disk(settings.backups, settings.data_dir)
