"""Sites for operators: the rules by which shell and REST add and change them and their secrets."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from shared.config.agents import AGENT_NAME, AgentRow
from shared.config.sites import (
    BadSiteConfig,
    SiteView,
    build_secret_context,
    build_site_form,
    check_site,
    parse_site_form,
)
from shared.core.ops.backups import key_id_of
from shared.core.values.errors import BadInput, EvertalkError
from shared.ports import SealedSecret, Sealer
from shared.services.admin.agent_service import SiteNotFound


class SiteStore(Protocol):
    """Store of sites and their secrets; changes are in the audit log under `by`.

    `find` returns None for an unknown site, `add` False if the name is taken, `change` None if the site's
    version has changed. `add_secret` returns False if there are two, `revoke_secret` False if it does not
    exist.
    """

    async def find(self, name: str) -> SiteView | None: ...
    async def add(self, site: SiteView, *, by: str) -> bool: ...
    async def change(self, site: SiteView, *, by: str) -> int | None: ...
    async def allow_origin(self, name: str, origin: str, *, by: str) -> None: ...
    async def list_sealing_keys(self) -> frozenset[str]: ...
    async def list_process_keys(self) -> frozenset[str]: ...
    async def add_secret(self, name: str, secret_id: str, sealed: SealedSecret, *, by: str) -> bool: ...
    async def revoke_secret(self, name: str, secret_id: str, *, by: str) -> bool: ...


class AgentNames(Protocol):
    """Store of agents; returns None for an unknown name."""

    async def find(self, name: str) -> AgentRow | None: ...


class BadSiteName(BadInput):
    """Invalid name of a site."""

    sentence = "Invalid name of a site."
    advice = "A name of a site has 1 to 40 of a-z, 0-9, _ and -, no mark first."


class SiteExists(EvertalkError):
    """The name of a site is taken."""

    sentence = "The name of a site is taken."
    code = "name_taken"
    advice = "A site with that name already exists."


class StaleSite(EvertalkError):
    """Another operator has changed the site."""

    sentence = "Another operator has changed the site."
    code = "stale"
    advice = "Another operator changed this meanwhile: your changes were not saved."


class UnknownSiteAgent(BadSiteConfig):
    """The agent of a site does not exist."""

    sentence = "The agent of a site does not exist."

    def __init__(self, agent: str) -> None:
        super().__init__(["agent: there is no such agent"])
        self.agent = agent


class TwoSecrets(EvertalkError):
    """The site has as many secrets as it may."""

    sentence = "The site has as many secrets as it may."
    code = "two_secrets"
    advice = "There are two secrets already; revoke one of them first."


class OtherProcessKey(EvertalkError):
    """The processes that run have another secret key."""

    sentence = "The processes that run have another secret key."
    code = "other_secret_key"
    advice = "The processes that run have another EVERTALK_SECRET_KEY. Nothing was added."


class OtherSealingKey(EvertalkError):
    """Stored secrets are sealed with another secret key."""

    sentence = "Stored secrets are sealed with another secret key."
    code = "other_secret_key"

    def __init__(self, *, here: str, stored: frozenset[str]) -> None:
        advice = (
            f"EVERTALK_SECRET_KEY here is not the key of this installation: stored secrets have the key "
            f"{', '.join(sorted(stored))}, and this is {here}. Nothing was added."
        )
        super().__init__(here, advice=advice)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSiteSecret:
    """Secret of a site, returned only once."""

    id: str
    secret: str


class SiteService:
    """Changes of sites, each in the audit log under its actor `by`. Raises StorageUnavailable."""

    def __init__(
        self, sites: SiteStore, agents: AgentNames, *, open_sealer: Callable[[bytes], Sealer]
    ) -> None:
        """Take a function that returns the encryption of a secret key."""
        self._sites = sites
        self._agents = agents
        self._open_sealer = open_sealer

    async def find_site(self, name: str) -> SiteView:
        """Return the site of this name. Raises SiteNotFound."""
        site = await self._sites.find(name)
        if site is None:
            raise SiteNotFound(name)
        return site

    async def check_form(self, form: Mapping[str, Any]) -> None:
        """Check the settings of a site, and that its agent exists; return and store nothing.

        Raises BadSiteConfig, or UnknownSiteAgent if the agent does not exist.
        """
        check_site(form)
        if "\x00" in form["agent"] or await self._agents.find(form["agent"]) is None:
            raise UnknownSiteAgent(form["agent"])

    async def add_site(self, name: str, form: Mapping[str, Any], *, by: str) -> SiteView:
        """Add a site and return it. Raises BadSiteName, BadSiteConfig, UnknownSiteAgent, SiteExists."""
        if not AGENT_NAME.fullmatch(name):
            raise BadSiteName(name)
        await self.check_form(form)
        site = parse_site_form(name, form, version=1)
        if not await self._sites.add(site, by=by):
            raise SiteExists(name)
        return site

    async def change_site(self, name: str, form: Mapping[str, Any], *, seen: int, by: str) -> SiteView:
        """Replace the settings of a site that has version `seen`, and return the site.

        Raises SiteNotFound, BadSiteConfig, UnknownSiteAgent, and StaleSite if another operator has changed
        it.
        """
        site = await self.find_site(name)
        await self.check_form(form)
        wanted = parse_site_form(site.name, form, version=seen)
        if await self._sites.change(wanted, by=by) is None:
            raise StaleSite(name)
        return wanted

    async def allow_origin(self, name: str, origin: str, *, by: str) -> None:
        """Add an origin to those that a site allows; repeating it has no effect. Raises SiteNotFound,
        BadSiteConfig.
        """
        form = build_site_form(await self.find_site(name))
        await self.check_form({**form, "origins": [*form["origins"], origin]})
        await self._sites.allow_origin(name, origin, by=by)

    async def add_secret(self, name: str, secret_key: bytes, *, by: str) -> NewSiteSecret:
        """Create a random secret of a site, store it sealed with the secret key, and return it.

        Raises SiteNotFound, OtherProcessKey, OtherSealingKey, and TwoSecrets if the site has two already.
        """
        site = await self.find_site(name)
        sealer = await asyncio.to_thread(self._open_sealer, secret_key)
        await self._check_key(key_id_of(secret_key), sealer.key_id)
        secret_id, secret = secrets.token_hex(4), secrets.token_urlsafe(48)
        sealed = sealer.seal(secret.encode(), about=build_secret_context(site.name, secret_id))
        if not await self._sites.add_secret(site.name, secret_id, sealed, by=by):
            raise TwoSecrets(name)
        return NewSiteSecret(id=secret_id, secret=secret)

    async def revoke_secret(self, name: str, secret_id: str, *, by: str) -> bool:
        """Revoke a secret and sign out all identified visitors of the site; False if it does not exist.

        Raises SiteNotFound.
        """
        site = await self.find_site(name)
        return await self._sites.revoke_secret(site.name, secret_id, by=by)

    async def _check_key(self, process_key: str, sealing_key: str) -> None:
        """Refuse a key with which running processes, or those of tomorrow, could not open the secret."""
        running = await self._sites.list_process_keys()
        if running and process_key not in running:
            raise OtherProcessKey
        stored = await self._sites.list_sealing_keys()
        if stored and sealing_key not in stored:
            raise OtherSealingKey(here=sealing_key, stored=stored)
