"""What the doctor says about pruning: nothing when all is well, else whose rules and what to do."""

from __future__ import annotations

import asyncpg

from shared.config.settings import load_settings
from shared.diagnostics.local_checks import check_pruning_plug_ins
from shared.diagnostics.row_checks import check_pruning_rules


async def test_rules_that_cannot_be_used_are_named_with_their_agent(database_url: str) -> None:
    assert await check_pruning_rules(load_settings(), database_url) == []
    connection = await asyncpg.connect(database_url, timeout=60)
    try:
        await connection.execute("""UPDATE agents SET config = '{"pruning": {"deny": ["read_*"]}}'""")
        assert await check_pruning_rules(load_settings(), database_url) == []
        await connection.execute("""UPDATE agents SET config = '{"pruning": {"denied": []}}'""")
        (finding,) = await check_pruning_rules(load_settings(), database_url)
    finally:
        await connection.close(timeout=30)
    assert finding.level == "warn"
    assert "pruning.denied" in finding.advice


async def test_without_plug_ins_nothing_is_said_about_them() -> None:
    assert await check_pruning_plug_ins(load_settings()) == []
