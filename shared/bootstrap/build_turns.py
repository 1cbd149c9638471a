"""Builds the services of turns: tools, request builder, agent loop and session service."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from shared.adapters.files.pruners import load_pruners
from shared.adapters.files.sandbox_client import open_in_sandbox
from shared.adapters.files.web_pages import FetchUrl
from shared.bootstrap.foundation import CHANNELS, Foundation
from shared.bootstrap.from_settings import build_away, build_handover_limits, to_micro
from shared.config.settings import load_policy_overrides
from shared.core.tools.reminders import parse_quiet_hours
from shared.core.values.recordings import RecordingLimits
from shared.ports import Tool
from shared.services.commands.sample import SamplePlayer
from shared.services.memory.memory_tools import build_memory_tools
from shared.services.memory.recall_tool import RecallTool
from shared.services.tools.calculator import CalculatorTool
from shared.services.tools.current_time import CurrentTimeTool
from shared.services.tools.handover import AskHumanTool, HandoverExpiry
from shared.services.tools.look_at_picture import LookAtPictureTool
from shared.services.tools.make_picture import MakePictureTool
from shared.services.tools.reminders import ReminderScheduler, ReminderTool
from shared.services.tools.send_file import SendFileTool
from shared.services.tools.tool_search import build_tool_search
from shared.services.turns.agent_loop import AgentLoop
from shared.services.turns.artifacts import ArtifactReader
from shared.services.turns.delegate_tool import DelegateTool
from shared.services.turns.pictures import PictureService
from shared.services.turns.request_builder import RequestBuilder
from shared.services.turns.retrieval import Retriever
from shared.services.turns.session_service import MESSAGE_CHARS, SessionService
from shared.services.turns.tool_images import ToolImageService
from shared.services.turns.toolbox import Toolbox
from shared.services.voice.hearing import HearingService
from shared.services.voice.speaking import SpeakingService

MIB = 1024 * 1024
"""Bytes of a mebibyte."""
BOT_MESSAGE_CHARS = 60_000
"""Most characters of a Telegram message; a long paste arrives in pieces of 4,096 and is joined again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnServices:
    """Services of turns that other parts of the program use."""

    requests: RequestBuilder
    toolbox: Toolbox
    pictures: PictureService
    sessions: SessionService


def build_turns(base: Foundation, *, tools: Sequence[Tool] = ()) -> TurnServices:
    """Return the services that answer turns, for the channel of this process's role.

    `tools` are offered in addition to the built-in ones.
    """
    requests = _build_requests(base)
    toolbox = _build_toolbox(base, requests, tools)
    pictures = PictureService(
        store=base.stores.attachments, model=base.models, counter=base.counter, spend=base.stores.turns,
        caps=base.caps, summary_model=base.models.summary,
    )  # fmt: skip
    agent_loop = AgentLoop(
        store=base.stores.turns,
        states=base.stores.jobs,
        model=base.models,
        requests=requests,
        toolbox=toolbox,
        spend=base.stores.turns,
        caps=base.caps,
        doorbell=base.doorbell,
        pictures=pictures,
        clock=base.clock,
        crash_point=base.crash_point,
        retriever=Retriever(
            store=base.stores.recall, requests=requests, reranker=base.reranker, encoder=base.encoder
        ),
        tracer=base.tracer,
    )
    sessions = _build_session_service(base, agent_loop)
    return TurnServices(requests=requests, toolbox=toolbox, pictures=pictures, sessions=sessions)


def build_hearing(base: Foundation) -> HearingService | None:
    """Return the service that transcribes recordings; None if no transcriber is configured."""
    settings, transcriber = base.settings, base.transcriber
    if transcriber is None:
        return None
    micro = to_micro(settings.transcribe_per_minute_usd)
    free = settings.transcribe_folder is not None and micro is None
    return HearingService(
        transcriber=transcriber,
        store=base.stores.attachments,
        spend=base.stores.turns,
        caps=base.caps,
        limits=RecordingLimits(
            minutes=settings.transcribe_most_minutes,
            bytes=int(settings.transcribe_most_mb * MIB),
            micro_per_minute=0 if free else micro,
        ),
        crash_point=base.crash_point,
    )


def build_speaking(base: Foundation) -> SpeakingService | None:
    """Return the service that reads answers aloud; None if no speech server is configured."""
    if base.speaker is None:
        return None
    return SpeakingService(
        speaker=base.speaker,
        store=base.stores.speech,
        answers=base.stores.deliveries,
        spend=base.stores.turns,
        caps=base.caps,
        micro_per_1000_chars=to_micro(base.settings.speech_per_1000_chars_usd),
        crash_point=base.crash_point,
    )


def _build_requests(base: Foundation) -> RequestBuilder:
    settings = base.settings
    return RequestBuilder(
        policy=base.policy,
        chat_model=base.models.chat,
        summary_model=base.models.summary,
        max_output=base.policy.max_output,
        counter=base.counter,
        context_window=settings.context_window,
        operator_policy=load_policy_overrides(settings),
        pruners=load_pruners(),
        workspaces=base.workspaces,
        fallbacks=base.models.fallbacks,
        timezone=settings.timezone,
        trusts_visitors=settings.profile == "personal",
    )


def _build_toolbox(base: Foundation, requests: RequestBuilder, more: Sequence[Tool]) -> Toolbox:
    settings, stores = base.settings, base.stores
    artifacts = ArtifactReader(stores.turns, base.counter)
    handover = AskHumanTool(
        stores.handovers, base.announcer, away=build_away(settings, base.clock), crash_point=base.crash_point
    )
    plain: list[Tool] = [
        *build_memory_tools(stores.notes, base.crash_point, home=settings.timezone),
        RecallTool(
            stores.recall,
            artifacts,
            base.counter,
            home=settings.timezone,
            reranker=base.reranker,
            encoder=base.encoder,
        ),
        CurrentTimeTool(base.clock, home=settings.timezone),
        CalculatorTool(),
        FetchUrl(),
        ReminderTool(stores.reminders, base.clock, timezone=settings.timezone),
        SendFileTool(partial(open_in_sandbox, "chart")),
        *_build_picture_tool(base),
        *([handover] if settings.has_handover else ()),
        *more,
    ]
    images = ToolImageService(stores.attachments, partial(open_in_sandbox, "picture"))
    delegate = DelegateTool(
        model=base.models,
        requests=requests,
        # A helper passes no pictures and files on, so its tools have no place to store them.
        toolbox_of=Toolbox(plain, source=base.mcp_tools, search=build_tool_search).for_agent,
        spend=stores.turns,
        ledger=stores.turns,
        caps=base.caps,
        counter=base.counter,
    )
    return Toolbox(
        [delegate, LookAtPictureTool(stores.attachments), *plain],
        source=base.mcp_tools,
        images=images,
        search=build_tool_search,
    )


def _build_picture_tool(base: Foundation) -> Sequence[Tool]:
    """Return the tool that makes pictures as a list; empty if no picture server is configured."""
    if base.picture_maker is None:
        return ()
    return (
        MakePictureTool(
            base.picture_maker,
            partial(open_in_sandbox, "picture"),
            spend=base.stores.turns,
            ledger=base.stores.turns,
            caps=base.caps,
            price_micro=to_micro(base.settings.picture_usd),
        ),
    )


def _build_session_service(base: Foundation, agent_loop: AgentLoop) -> SessionService:
    settings, stores = base.settings, base.stores
    return SessionService(
        channel=CHANNELS[base.role],
        worker_id=base.worker_id,
        turns=stores.turns,
        edits=stores.edits,
        heartbeat=base.heartbeat,
        agent_loop=agent_loop,
        counter=base.counter,
        doorbell=base.doorbell,
        caps=base.caps,
        crash_point=base.crash_point,
        announcer=base.announcer,
        message_chars=BOT_MESSAGE_CHARS if base.role == "bot" else MESSAGE_CHARS,
        reminders=ReminderScheduler(
            stores.reminders,
            base.counter,
            quiet=parse_quiet_hours(settings.quiet_hours),
            timezone=settings.timezone,
            crash_point=base.crash_point,
        ),
        samples=_build_sample_player(base) if base.models.offline and base.role == "web" else None,
        handovers=HandoverExpiry(stores.handovers, base.announcer, build_handover_limits(settings)),
        answered=base.models.take_answered,
        storage_limiter=base.limit_storage,
        given_up=base.given_up,
    )


def _build_sample_player(base: Foundation) -> SamplePlayer:
    return SamplePlayer(
        base.stores.samples,
        base.counter,
        base.announcer,
        tasks=base.background_tasks,
        crash_point=base.crash_point,
    )
