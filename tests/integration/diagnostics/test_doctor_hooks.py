"""The doctor reports messages that the compaction hook does not take, with what to do."""

from __future__ import annotations

import pytest

from shared.config.settings import load_settings
from shared.diagnostics.row_checks import check_compaction_hook
from tests.kit.app_driver import running_app, settings_for, visit

STORED = """
INSERT INTO compaction_hooks
       (session_id, job_id, cycle, round, phase, detail, state, error, created_at, ended_at)
VALUES ($1, $2, 0, 1, 'before', '{}', $3, $4, now() - interval '{age}',
        CASE WHEN $3 <> 'due' THEN now() END)
"""


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([], None),
        ([("sent", "", "1 h")], None),
        ([("failed", "http_404", "25 h")], None),
        ([("failed", "http_404", "1 h"), ("due", "no_connection", "1 h"), ("due", "no_connection", "2 h")],
         ("3 (no_connection)", "No server answers at that address.")),
        ([("failed", "http_302", "1 h")], ("1 (http_302)", "it must answer 2xx")),
        ([("failed", "address_refused", "1 h")], ("1 (address_refused)", "on the internet")),
    ],
)  # fmt: skip
async def test_messages_that_the_hook_does_not_take_are_reported(
    database_url: str, redis_url: str, rows: list[tuple[str, str, str]], told: tuple[str, str] | None
) -> None:
    async with running_app(settings_for(database_url, redis_url)) as app:
        guest = await visit(app)
        for number, (state, error, age) in enumerate(rows, start=1):
            await app.pool.execute(STORED.replace("{age}", age), guest.session_id, number, state, error)
        assert await check_compaction_hook(load_settings(), database_url) == []
        hooked = load_settings(compaction_hook_url="http://127.0.0.1:9/hook", compaction_hook_secret="s" * 32)
        found = await check_compaction_hook(hooked, database_url)
    if told is None:
        assert found == []
        return
    (finding,) = found
    assert finding.level == "warn"
    assert told[0] in finding.what
    assert told[1] in finding.advice
