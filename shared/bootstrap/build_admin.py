"""Builds the services of operators: alerts, push notifications, context inspector, playground, knowledge
index.
"""

from __future__ import annotations

import functools

from shared.adapters.alerts.web_push import WebPush
from shared.adapters.encryption import Encryption
from shared.adapters.files.knowledge_files import KnowledgeFiles, UnreadableKnowledge
from shared.adapters.postgres.handover.push import PostgresPush
from shared.bootstrap.build_turns import TurnServices
from shared.bootstrap.foundation import Foundation
from shared.bootstrap.from_settings import (
    WORKSPACES_FOLDER,
    build_alert_channels,
    build_alert_rules,
    build_away,
)
from shared.config.settings import Settings, resolve_secret_key
from shared.ports import Clock
from shared.runtime import CrashPoint, ignore_crash_point
from shared.services.admin.alert_sender import AlertMonitor
from shared.services.admin.context_inspector import ContextInspector
from shared.services.admin.playground import PLAYGROUND_TIMEOUTS, Playground
from shared.services.admin.push_sender import PushSender
from shared.services.compaction.silent_requests import OneShotCompletion
from shared.services.memory.knowledge_indexer import KnowledgeIndexer, KnowledgeStore


def build_alert_monitor(base: Foundation) -> AlertMonitor:
    """Return the monitor of alerts for this process.

    It has channels for webhook and mail in the web process only; the process that holds a Telegram bot sends
    to Telegram.
    """
    return AlertMonitor(
        base.stores.alerts,
        rules=build_alert_rules(base.settings),
        targets=base.settings.alert_targets,
        carriers=build_alert_channels(base.settings) if base.role == "web" else {},
        worker_id=base.worker_id,
        crash_point=base.crash_point,
    )


def build_push_sender(
    store: PostgresPush,
    settings: Settings,
    *,
    clock: Clock,
    crash_point: CrashPoint = ignore_crash_point,
) -> PushSender:
    """Return the sender of push notifications; the secret key is read with the first notification."""
    channel = WebPush(
        store,
        encryption=functools.cache(lambda: Encryption(resolve_secret_key(settings))),
        subject=_push_subject(settings),
        services=settings.push_services,
    )
    return PushSender(store, channel, away=build_away(settings, clock), crash_point=crash_point)


def _push_subject(settings: Settings) -> str:
    """Return the contact address for push services.

    One of them refuses addresses that cannot be reached from outside.
    """
    url, mail = settings.public_url or "", settings.alert_email_from
    return url if url.startswith("https:") else f"mailto:{mail}" if mail else "https://localhost"


def build_context_inspector(base: Foundation, turns: TurnServices) -> ContextInspector:
    """Return the service that shows operators the next request of a conversation, and earlier ones."""
    return ContextInspector(
        states=base.stores.jobs,
        replays=base.stores.replays,
        model=base.models,
        requests=turns.requests,
        toolbox=turns.toolbox,
        body=base.models.body,
    )


def build_playground(base: Foundation, turns: TurnServices) -> Playground:
    """Return the service with which operators try the draft of an agent."""
    return Playground(
        asking=OneShotCompletion(base.models, base.counter, bounds=PLAYGROUND_TIMEOUTS),
        requests=turns.requests, toolbox=turns.toolbox, ledger=base.stores.playground,
        knowledge=base.stores.knowledge, caps=base.caps, clock=base.clock,
    )  # fmt: skip


def build_knowledge_indexer(base: Foundation, store: KnowledgeStore) -> KnowledgeIndexer:
    """Return the indexer of knowledge folders, subscribed to changes of the watched workspaces."""
    indexer = KnowledgeIndexer(
        store=store,
        files=KnowledgeFiles(base.settings.data_dir / WORKSPACES_FOLDER),
        agents=base.stores.agent_folders,
        unreadable=UnreadableKnowledge,
        watcher=base.workspaces,
        given_up=base.given_up,
    )
    base.workspaces.subscribe(indexer.folder_changed)
    return indexer
