"""Builds the command service, and the reader of the memory behind an answer."""

from __future__ import annotations

from shared.bootstrap.build_turns import TurnServices
from shared.bootstrap.foundation import Foundation
from shared.bootstrap.from_settings import build_away
from shared.bootstrap.stores import Stores
from shared.config.settings import Settings
from shared.services.commands.account_links import AccountLinkCommands
from shared.services.commands.agents import SettingsCommands
from shared.services.commands.budget import BudgetCommands
from shared.services.commands.command_service import CommandService
from shared.services.commands.context import CompactionForecast
from shared.services.commands.export_erase import EraseEverythingCommand, ExportCommand
from shared.services.commands.feedback import FeedbackCommands
from shared.services.commands.handover import HandoverCommands
from shared.services.commands.memory import MemoryCommands
from shared.services.commands.reminders import ReminderCommands
from shared.services.commands.retry import RetryCommand
from shared.services.commands.sample import SampleCommand
from shared.services.commands.search import SearchCommand
from shared.services.commands.why import WhyCommand
from shared.services.memory.answer_memory import AnswerMemoryReader
from shared.services.privacy.erasure import ErasureService
from shared.services.privacy.export import DataExporter


def build_answer_memory(stores: Stores, settings: Settings) -> AnswerMemoryReader:
    """Return the reader that lists the notes, messages and files in the request of an answer."""
    return AnswerMemoryReader(stores.replays, stores.message_search, stores.notes, timezone=settings.timezone)


def build_commands(
    base: Foundation,
    turns: TurnServices,
    *,
    forecast: CompactionForecast,
    erasure: ErasureService,
    exporter: DataExporter,
) -> CommandService:
    """Return the service that runs the slash commands of all channels.

    `/sample` exists only with the offline model.
    """
    settings, stores, announcer = base.settings, base.stores, base.announcer
    return CommandService(
        store=stores.jobs,
        choice=stores.session_settings,
        pins=stores.pins,
        figures=stores.session_stats,
        sessions=turns.sessions,
        requests=turns.requests,
        announcer=announcer,
        doorbell=base.doorbell,
        forecast=forecast,
        caps=base.caps,
        model_name=base.models.chat,
        humans=settings.has_handover,
        speaks=base.speaker is not None,
        more=[
            BudgetCommands(
                spending=stores.session_stats, states=stores.jobs, requests=turns.requests,
                model=base.models, caps=base.caps, clock=base.clock,
            ),
            MemoryCommands(stores.notes, everything=EraseEverythingCommand(erasure).forget),
            SearchCommand(stores.message_search, timezone=settings.timezone),
            WhyCommand(stores.jobs, build_answer_memory(stores, settings), stores.notes),
            ExportCommand(exporter),
            RetryCommand(stores.edits, announcer),
            SettingsCommands(
                store=stores.session_settings, requests=turns.requests, speaks=base.speaker is not None
            ),
            ReminderCommands(stores.reminders, base.clock, timezone=settings.timezone),
            FeedbackCommands(stores.feedback),
            HandoverCommands(
                stores.handovers, announcer, away=build_away(settings, base.clock),
                enabled=settings.has_handover,
            ),
            *([SampleCommand(
                stores.samples, stores.jobs, erasure, announcer, limit=base.policy.soft_budget or 0
            )] if base.models.offline else ()),
            AccountLinkCommands(stores.account_links, announcer, crash_point=base.crash_point),
        ],
    )  # fmt: skip
