"""Services that change what operators own, put together for REST and for the verbs of the shell."""

from __future__ import annotations

from dataclasses import dataclass

from shared.adapters.encryption import Encryption
from shared.bootstrap.stores import Stores
from shared.services.admin.agent_service import AgentService
from shared.services.admin.key_service import ApiKeyService
from shared.services.admin.site_service import SiteService


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorServices:
    """By subject: what a verb of the shell and its REST operation both call."""

    agents: AgentService
    sites: SiteService
    keys: ApiKeyService


def build_operator_services(stores: Stores) -> OperatorServices:
    return OperatorServices(
        agents=AgentService(stores.agents, stores.sites),
        sites=SiteService(stores.sites, stores.agents, open_sealer=Encryption),
        keys=ApiKeyService(stores.api_key_admin),
    )
