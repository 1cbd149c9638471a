"""Builds all stores of a process from its connection pool."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import asyncpg

from shared.adapters.postgres.compaction.flushes import PostgresFlushes
from shared.adapters.postgres.compaction.hooks import PostgresCompactionHooks
from shared.adapters.postgres.compaction.job_backoff import PostgresJobBackoff
from shared.adapters.postgres.compaction.jobs import PostgresJobs
from shared.adapters.postgres.dashboard.alerts import PostgresAlerts
from shared.adapters.postgres.dashboard.cost_queries import PostgresPlayground
from shared.adapters.postgres.dashboard.hourly_stats import PostgresHourlyStats
from shared.adapters.postgres.dashboard.job_changes import PostgresJobChanges
from shared.adapters.postgres.dashboard.session_stats import PostgresSessionStats
from shared.adapters.postgres.dashboard.telegram import PostgresTelegramBots
from shared.adapters.postgres.db.duties import PostgresDuties
from shared.adapters.postgres.db.hour_counts import PostgresHourCounts
from shared.adapters.postgres.db.leases import PostgresLeases
from shared.adapters.postgres.db.listing import PostgresSessionList
from shared.adapters.postgres.db.pool import open_pool
from shared.adapters.postgres.db.readiness import PostgresReadiness
from shared.adapters.postgres.db.workers import PostgresWorkers
from shared.adapters.postgres.handover.handovers import PostgresHandovers
from shared.adapters.postgres.handover.inbox import PostgresInbox
from shared.adapters.postgres.handover.push import PostgresPush
from shared.adapters.postgres.memory.consolidation import PostgresConsolidation
from shared.adapters.postgres.memory.import_files import PostgresImportFiles
from shared.adapters.postgres.memory.import_summaries import PostgresImportSummaries
from shared.adapters.postgres.memory.knowledge import PostgresKnowledge
from shared.adapters.postgres.memory.notes import PostgresNotes
from shared.adapters.postgres.memory.passage_vectors import PostgresPassageVectors
from shared.adapters.postgres.memory.past_imports import PostgresPastImports
from shared.adapters.postgres.memory.recall import PostgresRecall
from shared.adapters.postgres.memory.recall_index import PostgresRecallIndex
from shared.adapters.postgres.memory.reminders import PostgresReminders
from shared.adapters.postgres.memory.search import PostgresMessageSearch
from shared.adapters.postgres.operations.evaluations import PostgresEvaluations
from shared.adapters.postgres.operations.mcp_tool_lists import PostgresMcpToolLists
from shared.adapters.postgres.operations.process_faults import PostgresProcessFaults
from shared.adapters.postgres.people.account_links import PostgresAccountLinks
from shared.adapters.postgres.people.agent_folders import PostgresAgentFolders
from shared.adapters.postgres.people.api_keys import PostgresApiKeys
from shared.adapters.postgres.people.api_sessions import PostgresApiSessions
from shared.adapters.postgres.people.forks import PostgresForks
from shared.adapters.postgres.people.identities import PostgresIdentities
from shared.adapters.postgres.people.people_directory import PostgresPeopleDirectory
from shared.adapters.postgres.people.tickets import PostgresTickets
from shared.adapters.postgres.people.visitors import PostgresVisitors
from shared.adapters.postgres.privacy.erasure import PostgresErasure
from shared.adapters.postgres.privacy.erasure_log import PostgresErasureLog
from shared.adapters.postgres.privacy.export import PostgresExport
from shared.adapters.postgres.privacy.leftovers import PostgresLeftovers
from shared.adapters.postgres.privacy.retention import PostgresRetention
from shared.adapters.postgres.telegram.access import PostgresTelegramAccess
from shared.adapters.postgres.telegram.chats import PostgresTelegramChats
from shared.adapters.postgres.telegram.deliveries import PostgresDeliveries
from shared.adapters.postgres.telegram.guest_queries import PostgresGuestQueries
from shared.adapters.postgres.telegram.inbox import PostgresTelegramInbox
from shared.adapters.postgres.telegram.receipts import FOLLOW_WORDING
from shared.adapters.postgres.telegram.secretary import PostgresSecretary
from shared.adapters.postgres.telegram.uncertain_notices import PostgresUncertainNotices
from shared.adapters.postgres.turns.allowance import PostgresTokenReservations
from shared.adapters.postgres.turns.attachments import PostgresAttachments
from shared.adapters.postgres.turns.edits import PostgresEdits
from shared.adapters.postgres.turns.events import PostgresEvents
from shared.adapters.postgres.turns.feedback import PostgresFeedback
from shared.adapters.postgres.turns.history import PostgresHistory
from shared.adapters.postgres.turns.pins import PostgresPins
from shared.adapters.postgres.turns.replays import PostgresReplays
from shared.adapters.postgres.turns.samples import PostgresSamples
from shared.adapters.postgres.turns.session_settings import PostgresSessionSettings
from shared.adapters.postgres.turns.turns import PostgresTurns
from shared.adapters.postgres.turns.uploads import PostgresUploads
from shared.adapters.postgres.voice.speech import PostgresSpeech
from shared.config.settings import Settings
from shared.runtime import CrashPoint, build_crash_point, ignore_crash_point

if TYPE_CHECKING:
    from shared.adapters.postgres.people.agents import PostgresAgents
    from shared.adapters.postgres.people.api_key_admin import ApiKeyAdmin
    from shared.adapters.postgres.people.operator_admin import OperatorAdmin
    from shared.adapters.postgres.people.sites import PostgresSites


class LazyStore:
    """Proxy of an administration store that imports it at the first call.

    SQLAlchemy takes a second and 20 MiB; it is imported in a thread, so that the event loop does not wait.
    """

    def __init__(self, module: str, name: str, pool: asyncpg.Pool[asyncpg.Record]) -> None:
        self._place = f"shared.adapters.postgres.people.{module}", name
        self._pool = pool
        self._store: Any = None

    def __getattr__(self, method: str) -> Callable[..., Awaitable[Any]]:
        async def ask(*arguments: object, **named: object) -> Any:
            if self._store is None:
                module, name = self._place
                self._store = getattr(await asyncio.to_thread(import_module, module), name)(self._pool)
            return await getattr(self._store, method)(*arguments, **named)

        return ask


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """All stores by subject, in the order of the rooms of `shared.adapters.postgres`."""

    duties: PostgresDuties
    hour_counts: PostgresHourCounts
    leases: PostgresLeases
    readiness: PostgresReadiness
    session_list: PostgresSessionList
    workers: PostgresWorkers

    attachments: PostgresAttachments
    deliveries: PostgresDeliveries
    edits: PostgresEdits
    events: PostgresEvents
    feedback: PostgresFeedback
    history: PostgresHistory
    pins: PostgresPins
    replays: PostgresReplays
    samples: PostgresSamples
    session_settings: PostgresSessionSettings
    speech: PostgresSpeech
    turns: PostgresTurns
    uncertain_notices: PostgresUncertainNotices
    token_reservations: PostgresTokenReservations
    uploads: PostgresUploads

    flushes: PostgresFlushes
    job_backoff: PostgresJobBackoff
    jobs: PostgresJobs

    consolidation: PostgresConsolidation
    knowledge: PostgresKnowledge
    notes: PostgresNotes
    recall: PostgresRecall
    import_files: PostgresImportFiles
    past_imports: PostgresPastImports
    import_summaries: PostgresImportSummaries
    passage_vectors: PostgresPassageVectors
    recall_index: PostgresRecallIndex
    message_search: PostgresMessageSearch
    reminders: PostgresReminders

    evaluations: PostgresEvaluations
    mcp_tool_lists: PostgresMcpToolLists
    process_faults: PostgresProcessFaults

    account_links: PostgresAccountLinks
    agent_folders: PostgresAgentFolders
    agents: PostgresAgents
    api_key_admin: ApiKeyAdmin
    api_keys: PostgresApiKeys
    api_sessions: PostgresApiSessions
    handovers: PostgresHandovers
    inbox: PostgresInbox
    forks: PostgresForks
    identities: PostgresIdentities
    operator_admin: OperatorAdmin
    people_directory: PostgresPeopleDirectory
    push: PostgresPush
    sites: PostgresSites
    tickets: PostgresTickets
    visitors: PostgresVisitors

    telegram_access: PostgresTelegramAccess
    telegram_bots: PostgresTelegramBots
    telegram_chats: PostgresTelegramChats
    telegram_inbox: PostgresTelegramInbox
    guest_queries: PostgresGuestQueries
    secretary: PostgresSecretary

    erasure: PostgresErasure
    erasure_log: PostgresErasureLog
    export: PostgresExport
    leftovers: PostgresLeftovers
    retention: PostgresRetention

    alerts: PostgresAlerts
    compaction_hooks: PostgresCompactionHooks
    hourly_stats: PostgresHourlyStats
    job_changes: PostgresJobChanges
    playground: PostgresPlayground
    session_stats: PostgresSessionStats


def build_stores(
    pool: asyncpg.Pool[asyncpg.Record], *, timezone: str = "UTC", crash_point: CrashPoint = ignore_crash_point
) -> Stores:
    """Return all stores on one connection pool; days of spending and statistics begin at midnight in
    `timezone`.
    """
    account_links = PostgresAccountLinks(pool, timezone=timezone)

    def make_lazy(module: str, name: str) -> Any:
        return LazyStore(module, name, pool)

    return Stores(
        duties=PostgresDuties(pool),
        hour_counts=PostgresHourCounts(pool, timezone=timezone, crash_point=crash_point),
        leases=PostgresLeases(pool),
        readiness=PostgresReadiness(pool),
        session_list=PostgresSessionList(pool, crash_point=crash_point),
        workers=PostgresWorkers(pool),
        attachments=PostgresAttachments(pool),
        deliveries=PostgresDeliveries(pool),
        edits=PostgresEdits(pool, follow=(FOLLOW_WORDING,)),
        events=PostgresEvents(pool),
        feedback=PostgresFeedback(pool),
        history=PostgresHistory(pool),
        pins=PostgresPins(pool),
        replays=PostgresReplays(pool),
        samples=PostgresSamples(pool),
        session_settings=PostgresSessionSettings(pool),
        speech=PostgresSpeech(pool),
        turns=PostgresTurns(pool, slice_taken=partial(crash_point, "after_slice")),
        uncertain_notices=PostgresUncertainNotices(pool),
        token_reservations=PostgresTokenReservations(pool, timezone=timezone),
        uploads=PostgresUploads(pool),
        flushes=PostgresFlushes(pool),
        job_backoff=PostgresJobBackoff(pool),
        jobs=PostgresJobs(pool),
        consolidation=PostgresConsolidation(pool),
        knowledge=PostgresKnowledge(pool),
        notes=PostgresNotes(pool),
        recall=PostgresRecall(pool),
        import_files=PostgresImportFiles(pool),
        past_imports=PostgresPastImports(pool),
        import_summaries=PostgresImportSummaries(pool),
        passage_vectors=PostgresPassageVectors(pool),
        recall_index=PostgresRecallIndex(pool),
        message_search=PostgresMessageSearch(pool),
        reminders=PostgresReminders(pool),
        evaluations=PostgresEvaluations(pool),
        mcp_tool_lists=PostgresMcpToolLists(pool),
        process_faults=PostgresProcessFaults(pool),
        account_links=account_links,
        agent_folders=PostgresAgentFolders(pool),
        agents=make_lazy("agents", "PostgresAgents"),
        api_key_admin=make_lazy("api_key_admin", "ApiKeyAdmin"),
        api_keys=PostgresApiKeys(pool),
        api_sessions=PostgresApiSessions(pool),
        handovers=PostgresHandovers(pool),
        inbox=PostgresInbox(pool),
        forks=PostgresForks(pool, crash_point=crash_point),
        identities=PostgresIdentities(pool, people=account_links),
        operator_admin=make_lazy("operator_admin", "OperatorAdmin"),
        people_directory=PostgresPeopleDirectory(pool),
        push=PostgresPush(pool),
        sites=make_lazy("sites", "PostgresSites"),
        tickets=PostgresTickets(pool),
        visitors=PostgresVisitors(pool),
        telegram_access=PostgresTelegramAccess(pool),
        telegram_bots=PostgresTelegramBots(pool),
        telegram_chats=PostgresTelegramChats(pool),
        telegram_inbox=PostgresTelegramInbox(pool),
        guest_queries=PostgresGuestQueries(pool),
        secretary=PostgresSecretary(pool),
        erasure=PostgresErasure(pool),
        erasure_log=PostgresErasureLog(pool),
        export=PostgresExport(pool),
        leftovers=PostgresLeftovers(pool),
        retention=PostgresRetention(pool),
        alerts=PostgresAlerts(pool),
        compaction_hooks=PostgresCompactionHooks(pool),
        hourly_stats=PostgresHourlyStats(pool, timezone=timezone),
        job_changes=PostgresJobChanges(pool),
        playground=PostgresPlayground(pool),
        session_stats=PostgresSessionStats(pool, timezone=timezone),
    )


def change_timezone(stores: Stores, pool: asyncpg.Pool[asyncpg.Record], settings: Settings) -> Stores:
    """Return the stores with the time zone of `settings`; those that count by days are replaced, the others
    kept.
    """
    zone = settings.timezone
    account_links = PostgresAccountLinks(pool, timezone=zone)
    return replace(
        stores,
        account_links=account_links,
        identities=PostgresIdentities(pool, people=account_links),
        hour_counts=PostgresHourCounts(
            pool, timezone=zone, crash_point=build_crash_point(settings.crash_point)
        ),
        token_reservations=PostgresTokenReservations(pool, timezone=zone),
        hourly_stats=PostgresHourlyStats(pool, timezone=zone),
        session_stats=PostgresSessionStats(pool, timezone=zone),
    )


@asynccontextmanager
async def open_stores(database_url: str, *, size: int = 2) -> AsyncIterator[Stores]:
    """Open all stores for a short task, such as a verb of the command line.

    The context closes the pool of at most `size` connections; days begin at midnight UTC. Raises
    StorageUnavailable.
    """
    pool = await open_pool(database_url, size=size)
    try:
        yield build_stores(pool)
    finally:
        await pool.close()
