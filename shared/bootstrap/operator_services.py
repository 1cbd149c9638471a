"""Services that change what operators own, put together for REST and for the verbs of the shell."""

from __future__ import annotations

from dataclasses import dataclass

from shared.adapters.encryption import Encryption
from shared.bootstrap.stores import Stores
from shared.runtime import CrashPoint, ignore_crash_point
from shared.services.admin.agent_service import AgentService
from shared.services.admin.alert_service import AlertService
from shared.services.admin.key_service import ApiKeyService
from shared.services.admin.pairing_service import PairingService
from shared.services.admin.person_service import PersonService
from shared.services.admin.site_service import SiteService
from shared.services.privacy.erasure import ErasureAnnouncer, ErasureService


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorServices:
    """Services of operators by subject, which the command line and the REST operations both call."""

    agents: AgentService
    sites: SiteService
    keys: ApiKeyService
    people: PersonService
    pairing: PairingService
    alerts: AlertService


def build_operator_services(
    stores: Stores,
    *,
    announcer: ErasureAnnouncer | None = None,
    crash_point: CrashPoint = ignore_crash_point,
) -> OperatorServices:
    """Return the services; without an `announcer`, open chats find an erasure by polling, within seconds."""
    eraser = ErasureService(store=stores.erasure, announcer=announcer, crash_point=crash_point)
    return OperatorServices(
        agents=AgentService(stores.agents, stores.sites),
        sites=SiteService(stores.sites, stores.agents, open_sealer=Encryption),
        keys=ApiKeyService(stores.api_key_admin),
        people=PersonService(stores.people_directory, stores.erasure, eraser),
        pairing=PairingService(stores.telegram_access, stores.telegram_bots),
        alerts=AlertService(stores.alerts),
    )
