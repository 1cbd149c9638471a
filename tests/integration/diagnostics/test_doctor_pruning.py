"""What the doctor says about pruning: nothing when all is well, else whose rules and what to do."""

from __future__ import annotations

import asyncpg

from shared.config.settings import load_settings
from shared.diagnostics.doctor import _check_pruners, _load_agent_rules


async def test_rules_that_cannot_be_used_are_named_with_their_agent(database_url: str) -> None:
    assert await _load_agent_rules(database_url) == []
    connection = await asyncpg.connect(database_url, timeout=60)
    try:
        await connection.execute("""UPDATE agents SET config = '{"pruning": {"deny": ["read_*"]}}'""")
        assert await _load_agent_rules(database_url) == []
        await connection.execute("""UPDATE agents SET config = '{"pruning": {"denied": []}}'""")
        (finding,) = await _load_agent_rules(database_url)
    finally:
        await connection.close(timeout=30)
    assert finding.level == "warn"
    assert "pruning.denied" in finding.advice


async def test_without_plug_ins_nothing_is_said_about_them() -> None:
    assert await _check_pruners(load_settings()) == []
