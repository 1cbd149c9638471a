"""One plant for the whole folder, a fresh database for each case; recovery times are printed at the end."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from shared.adapters.embedded import EmbeddedServers
from shared.adapters.postgres.db.migrate import migrate
from tests.faults.house import House
from tests.kit.deployment.breakable_servers import Case, Plant, Recovery
from tests.kit.deployment.forks import Hatchery, hatchery
from tests.kit.fakes.bot_api import BotApi, running_bot_api
from tests.kit.temp_folders import short_folder

HERE = Path(__file__).parent
TEMPLATE = "faults_template"
ENDS_SECONDS = 600
"""The first test of a file may play its scenes for all the others."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.faults)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(ENDS_SECONDS))


@pytest.fixture(scope="session")
def recovery(pytestconfig: pytest.Config) -> Iterator[Recovery]:
    measured = Recovery()
    yield measured
    terminal = pytestconfig.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None and measured.report():
        terminal.write_line("")
        terminal.write_line("recovered after")
        for line in measured.report():
            terminal.write_line(line)


@pytest.fixture(scope="session", name="hatchery")
def running_hatchery() -> Hatchery:
    return hatchery()


@pytest.fixture(scope="session")
async def plant(hatchery: Hatchery) -> AsyncIterator[Plant]:
    folder = short_folder("evf-")
    running = EmbeddedServers(folder / "servers")
    await running.start()
    made = Plant(servers=running, folder=folder, hatchery=hatchery)
    await made.admin(f'create database "{TEMPLATE}"')
    await migrate(made.database_url(TEMPLATE))
    yield made
    await running.stop()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
async def api() -> AsyncIterator[BotApi]:
    async with running_bot_api() as running:
        yield running


@pytest.fixture
async def case(plant: Plant) -> AsyncIterator[Case]:
    made = await plant.case(TEMPLATE)
    yield made
    await plant.drop(made.database)


@pytest.fixture(scope="module")
async def shared_house(plant: Plant) -> AsyncIterator[House]:
    case = await plant.case(TEMPLATE)
    async with case.web() as web, case.worker() as worker:
        yield House(case=case, web=web, worker=worker)
        # Restarted by us or not: these two were never to fall.
        assert (web.exits, worker.exits) == ([], []), web.words() + worker.words()
    await plant.drop(case.database)
