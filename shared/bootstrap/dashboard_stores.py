"""Builds the stores that only operators use, once in the process that serves the dashboard."""

from __future__ import annotations

import functools
import hmac
from collections.abc import Callable
from dataclasses import dataclass, replace

import asyncpg

from shared.adapters.encryption import Encryption
from shared.adapters.postgres.dashboard.alert_queries import AlertInsights
from shared.adapters.postgres.dashboard.audit_queries import AuditInsights
from shared.adapters.postgres.dashboard.cost_queries import CostInsights
from shared.adapters.postgres.dashboard.job_queries import JobInsights
from shared.adapters.postgres.dashboard.memory_queries import MemoryInsights
from shared.adapters.postgres.dashboard.metrics_queries import Durations, MetricsInsights
from shared.adapters.postgres.dashboard.people_queries import PeopleInsights
from shared.adapters.postgres.dashboard.read_models import Insights
from shared.adapters.postgres.dashboard.session_queries import SessionInsights
from shared.adapters.postgres.people.login_tries import LoginTries
from shared.adapters.postgres.people.operator_auth import Operators
from shared.adapters.postgres.people.second_factors import SecondFactors
from shared.adapters.postgres.people.stored_settings import PostgresStoredSettings
from shared.adapters.postgres.turns.counters import RunningSums
from shared.bootstrap.stored_settings import build_stored_settings
from shared.bootstrap.stores import Stores
from shared.config.settings import BadSettings, Settings, resolve_secret_key
from shared.runtime import build_crash_point
from shared.services.tools.handover import HandoverService
from shared.services.tools.handover_actions import HandoverActions


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardStores:
    """Stores of the dashboard: first those that it reads, then those that it also writes."""

    overview: Insights
    sessions: SessionInsights
    people: PeopleInsights
    memory: MemoryInsights
    costs: CostInsights
    jobs: JobInsights
    alerts: AlertInsights
    audit: AuditInsights
    metrics: MetricsInsights
    durations: Durations
    running_sums: RunningSums

    operators: Operators
    second_factors: SecondFactors
    login_tries: LoginTries
    stored_settings: PostgresStoredSettings


def build_dashboard_stores(pool: asyncpg.Pool[asyncpg.Record], settings: Settings) -> DashboardStores:
    """Return all stores that only the dashboard uses, on the given pool."""
    operators = build_operators(pool, settings)
    return DashboardStores(
        overview=Insights(pool, timezone=settings.timezone),
        sessions=SessionInsights(pool),
        people=PeopleInsights(pool),
        memory=MemoryInsights(pool),
        costs=CostInsights(pool),
        jobs=JobInsights(pool),
        alerts=AlertInsights(pool),
        audit=AuditInsights(pool),
        metrics=MetricsInsights(pool, timezone=settings.timezone),
        durations=Durations(pool),
        running_sums=RunningSums(pool),
        operators=operators,
        second_factors=SecondFactors(
            pool,
            operators=operators,
            encryption=functools.cache(lambda: Encryption(resolve_secret_key(settings))),
            crash_point=build_crash_point(settings.crash_point),
        ),
        login_tries=LoginTries(pool),
        stored_settings=build_stored_settings(pool, settings),
    )


def change_dashboard_timezone(
    stores: DashboardStores, settings: Settings, *, former: Settings
) -> DashboardStores:
    """Return the stores with the time zone of `settings`; the same object if it is as in `former`."""
    if settings.timezone == former.timezone:
        return stores
    return replace(
        stores,
        overview=stores.overview.in_zone(settings.timezone),
        metrics=stores.metrics.in_zone(settings.timezone),
    )


def build_handover_actions(
    handovers: HandoverService, stores: Stores, admin: DashboardStores
) -> HandoverActions:
    """Return the actions of operators on handed-over conversations, which are recorded in the audit log."""
    return HandoverActions(handovers, stores.inbox, admin.operators)


def build_operators(pool: asyncpg.Pool[asyncpg.Record], settings: Settings | None = None) -> Operators:
    """Return the store of operators; without settings it cannot recognise new login places."""
    return Operators(pool) if settings is None else Operators(pool, place_key=_make_place_key(settings))


def _make_place_key(settings: Settings) -> Callable[[], bytes | None]:
    """Return a function that returns the key for hashing login places; None without a secret key.

    Its first call reads or creates the secret key; later calls return the same result.
    """

    @functools.cache
    def key() -> bytes | None:
        try:
            return hmac.digest(resolve_secret_key(settings), b"evertalk.login-places.1", "sha256")
        except BadSettings:
            return None

    return key
