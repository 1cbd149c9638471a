"""A dashboard that has something to show on each page."""

from __future__ import annotations

from tests.browser.dashboard.people_dashboard import PeopleDashboard
from tests.browser.dashboard.seeded_alerts import SEED
from tests.kit.dashboard import seed, seed_work
from tests.kit.dashboard.money_seed import a_month
from tests.kit.dashboard.people_seed import a_bot, a_site, public_id_of


async def fill_house(dashboard: PeopleDashboard) -> dict[str, str]:
    """Store something for every page, and return the path of each page by its name."""
    async with dashboard.pool.acquire() as connection:
        long, links = await seed.a_long_session(connection, turns=412, person="Berta")
        await a_month(connection, long)
        await a_bot(connection)
        await a_site(connection)
        await connection.execute(SEED)
        person = await public_id_of(connection, dashboard.crowd.maria)
        await connection.execute(
            "INSERT INTO telegram_bots (bot_id, username, agent_id, mode, access)"
            " VALUES (778, 'other_bot', $1, 'webhook', 'open')", await seed.an_agent(connection),
        )  # fmt: skip
    await seed_work.jobs(dashboard.pool)
    await seed_work.doubts(dashboard.pool)
    pages = (
        "sessions", "inbox", "people", "memory", "jobs", "deliveries", "alerts", "costs?group=purpose",
        "agents", "sites", "pairing", "operators", "operators?who=1", "audit", "settings", "account",
        "search", "sessions?q=nobody", "jobs?state=done&kind=tidy", "memory?q=nothing", "search#Lisbon",
    )  # fmt: skip
    return {"": "", **{name: f"/{name}" for name in pages}} | {
        "session": f"/sessions/{long.public_id}#c-{links[-1]}",
        "person": f"/people/{person}",
        "agent": "/agents/default",
        "site": "/sites/shop",
        "no session": f"/sessions/{person}",
        "no agent": "/agents/nobody",
        "notes of one": f"/memory?person={person}",
    }
