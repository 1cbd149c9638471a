"""The doctor tells of sites that let nobody in, and of those where nobody can sign in."""

from __future__ import annotations

import asyncpg

from shared.adapters.postgres.db.pool import open_pool
from shared.config.settings import load_settings
from shared.diagnostics.row_checks import check_sites


async def test_invalid_sites_are_reported_with_the_reason(database_url: str) -> None:
    pool: asyncpg.Pool[asyncpg.Record] = await open_pool(database_url, size=1)
    try:
        (found,) = await check_sites(load_settings(), database_url)
        assert (found.level, found.what) == ("ok", "1 site can be used")
        await pool.execute(
            """INSERT INTO sites (name, agent_id, config)
               SELECT 'shop', agent_id, '{"accent": "red", "titel": "x"}'::jsonb FROM sites"""
        )
        await pool.execute("""UPDATE sites SET config = '{"verified": "optional"}' WHERE name = 'default'""")
        (found,) = await check_sites(load_settings(), database_url)
    finally:
        await pool.close()
    assert found.level == "warn"
    assert "site default: visitors cannot sign in yet: add a secret with ./evertalk site secret" in found.what
    assert "site shop: accent: must be a colour" in found.what
    assert "site shop: titel: there is no such key" in found.what
    assert found.advice == "Change a site with ./evertalk site edit NAME."
