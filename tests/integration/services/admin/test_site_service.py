"""Rules of sites and their secrets, which shell and REST share."""

from __future__ import annotations

from typing import Any

import pytest

from shared.adapters.encryption import Encryption, Sealed
from shared.adapters.postgres.db.workers import PostgresWorkers
from shared.bootstrap.operator_services import build_operator_services
from shared.bootstrap.stores import build_stores
from shared.config.sites import BadSiteConfig, build_secret_context
from shared.core.ops.backups import key_id_of
from shared.services.admin.agent_service import SiteNotFound
from shared.services.admin.site_service import (
    BadSiteName,
    OtherProcessKey,
    OtherSealingKey,
    SiteExists,
    SiteService,
    StaleSite,
    TwoSecrets,
    UnknownSiteAgent,
)
from tests.kit.audit import read_audit

FORM: dict[str, Any] = {"agent": "default", "audience": "personal", "origins": []}
KEY = b"k" * 40


@pytest.fixture
def site_service(pool: Any) -> SiteService:
    return build_operator_services(build_stores(pool)).sites


async def run_process(pool: Any, key: bytes) -> None:
    worker = await PostgresWorkers(pool).register("web")
    health = {"same": {"key": key_id_of(key)}}
    await pool.execute("UPDATE workers SET health = $2, beat = now() WHERE id = $1", worker, health)


async def test_each_change_of_a_site_names_its_actor(site_service: SiteService, pool: Any) -> None:
    await site_service.add_site("shop", FORM, by="anna")
    await site_service.change_site("shop", {**FORM, "title": "Shop"}, seen=1, by="anna")
    await site_service.allow_origin("shop", "https://shop.example", by="anna")
    made = await site_service.add_secret("shop", KEY, by="anna")
    assert await site_service.revoke_secret("shop", made.id, by="anna")
    assert not await site_service.revoke_secret("shop", made.id, by="anna")
    entries = await read_audit(pool)
    assert {entry.actor for entry in entries} == {"anna"}
    assert [entry.action for entry in entries] == [
        "site.made", "site.changed", "site.origin_allowed", "site.secret_added", "site.secret_revoked",
    ]  # fmt: skip


async def test_refused_change_of_a_site_leaves_no_trace(site_service: SiteService, pool: Any) -> None:
    for name, form, refusal in (
        ("default", FORM, SiteExists), ("a b", FORM, BadSiteName), ("shop", {}, BadSiteConfig),
        ("shop", {**FORM, "agent": "nobody"}, UnknownSiteAgent),
        ("shop", {**FORM, "agent": "a\x00"}, UnknownSiteAgent),
    ):  # fmt: skip
        with pytest.raises(refusal):
            await site_service.add_site(name, form, by="anna")
    with pytest.raises(StaleSite):
        await site_service.change_site("default", FORM, seen=7, by="anna")
    with pytest.raises(SiteNotFound):
        await site_service.change_site("shop", FORM, seen=1, by="anna")
    with pytest.raises(BadSiteConfig):
        await site_service.allow_origin("default", "javascript:alert(1)", by="anna")
    with pytest.raises(SiteNotFound):
        await site_service.add_secret("shop", KEY, by="anna")
    assert await read_audit(pool) == []


@pytest.mark.control("S37")
async def test_site_secret_is_sealed_with_the_key_of_the_processes(
    site_service: SiteService, pool: Any
) -> None:
    await run_process(pool, KEY)
    made = await site_service.add_secret("default", KEY, by="anna")
    row = await pool.fetchrow("SELECT key_id, sealed FROM site_secrets")
    sealed = Sealed(key_id=row["key_id"], data=row["sealed"])
    assert (
        Encryption(KEY).open(sealed, about=build_secret_context("default", made.id)).decode() == made.secret
    )
    assert made.secret not in str(await read_audit(pool))
    with pytest.raises(OtherProcessKey):
        await site_service.add_secret("default", b"other" * 8, by="anna")


@pytest.mark.control("S37")
async def test_site_secret_is_not_sealed_with_another_key_than_stored_ones(
    site_service: SiteService, pool: Any
) -> None:
    await site_service.add_secret("default", KEY, by="anna")
    with pytest.raises(OtherSealingKey, match=Encryption(b"other" * 8).key_id):
        await site_service.add_secret("default", b"other" * 8, by="anna")
    await site_service.add_secret("default", KEY, by="anna")
    with pytest.raises(TwoSecrets):
        await site_service.add_secret("default", KEY, by="anna")
    assert await pool.fetchval("SELECT count(*) FROM site_secrets") == 2
