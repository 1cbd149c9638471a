"""Real servers for every test that asks: started once per run, a fresh database for each test."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from tests.kit.markers import marked
from tests.kit.needed_programs import NEEDY, chromium, needs_programs
from tests.kit.night import NIGHT
from tests.kit.run_order import in_order_of_weight
from tests.kit.suite.time_limit import set_timer
from tests.kit.temp_folders import short_folder

if TYPE_CHECKING:
    import asyncpg
    from playwright.async_api import Browser

    from shared.adapters.embedded import EmbeddedServers
    from shared.bootstrap.app import App
    from shared.ports import Tool
    from tests.kit.app_driver import Visit
    from tests.kit.fakes.messages_api.harness import RunningFake
    from tests.kit.fakes.oidc.harness import RunningProvider
    from tests.kit.fakes.push.harness import RunningPush
    from tests.kit.fakes.speech.harness import RunningSpeech
    from tests.kit.fakes.transcriptions.harness import RunningTranscriptions

# An operator's own keys and servers are none of the tests' business.
for _name in [name for name in os.environ if name.startswith(("EVERTALK_", "ANTHROPIC_", "TELEGRAM_"))]:
    del os.environ[_name]
for _name in ("DATABASE_URL", "REDIS_URL", "CONTEXT_MAX_OUTPUT_TOKENS"):
    os.environ.pop(_name, None)
os.environ["EVERTALK_ENV_FILE"] = ""
# Tests that root runs add no account to the machine.
os.environ["EVERTALK_SERVERS_ACCOUNT"] = "nobody"
# Hundreds of processes load the same code: what one of them has compiled, the others read.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

HERE = Path(__file__).parent
_TEMPLATE = "evertalk_template"
_REDIS_DATABASES = 16
_KEPT_REDIS_DATABASES = 4
"""For whole modules; what a test empties for itself must never be one of them."""
_numbers, _kept_numbers = count(1), count(1)


def pytest_collection_finish() -> None:
    """What the web process serves is read once, not for each of a thousand servers."""
    if served := sys.modules.get("web.app"):
        vars(served)["Files"] = cache(vars(served)["Files"])


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """What is read here stays until the end: nobody need look through it for garbage, now or later."""
    gc.disable()
    try:
        if hasattr(session.config, "workerinput"):
            _compile_a_share(session.config)
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def _compile_a_share(config: pytest.Config) -> None:
    """Each worker begins elsewhere: what one has compiled when the others come by, they only read."""
    number, workers = int(os.environ["PYTEST_XDIST_WORKER"][2:]), int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    files = sorted(file for place in config.args for file in Path(place).rglob("test_*.py"))
    share = len(files) // workers
    for file in files[number * share : (number + 1) * share]:
        with suppress(Exception):  # whoever collects it says what is wrong with it
            import_module(".".join(file.resolve().relative_to(HERE.parent).with_suffix("").parts))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--control", metavar="S09", help="only tests that prove this row of docs/controls.md")
    parser.addoption("--unit", action="store_true", help="only tests that need no server and no browser")
    parser.addoption("--by-day", action="store_true", help="no tests of the night, though a file is named")
    parser.addoption("--night", action="store_true", help="also tests of the night, and others at length")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[NEEDY] = []
    if (wanted := config.getoption("--control")) and wanted not in (known := sorted(marked("control"))):
        raise pytest.UsageError(
            f"no control is called {wanted!r}: they are {known[0]} to {known[-1]}, see docs/controls.md"
        )
    if config.getoption("--night"):
        os.environ[NIGHT] = "1"
    # A busy machine is no failure: no example has a time.
    settings.register_profile("untimed", deadline=None)
    settings.load_profile("untimed")


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: object) -> bool | None:
    return set_timer(item, settings)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--unit"):
        config.stash[NEEDY] = needy = [item for item in items if needs_programs(item)]
        config.hook.pytest_deselected(items=needy)
        items[:] = [item for item in items if item not in set(needy)]
    wanted = config.getoption("--control")
    if wanted:
        items[:] = [
            item for item in items if any(wanted in mark.args for mark in item.iter_markers("control"))
        ]
    elif not config.getoption("--night"):
        named = () if config.getoption("--by-day") else config.args
        asked_for = {Path(argument.partition("::")[0]).resolve() for argument in named}
        late = {one for one in items if one.get_closest_marker("night") and one.path not in asked_for}
        config.hook.pytest_deselected(items=list(late))
        items[:] = [item for item in items if item not in late]
    if hasattr(config, "workerinput"):
        place = {path: at for at, path in enumerate(in_order_of_weight({one.path: 0 for one in items}, HERE))}
        items.sort(key=lambda one: place[one.path])


@pytest.fixture(scope="session")
def seed() -> int:
    """From which a test draws its moments and orders; `./evertalk test faults --seeds N` gives it others."""
    return 1


@pytest.fixture(scope="session")
def run_folder() -> Iterator[Path]:
    """Of the servers of this run."""
    folder = short_folder("evt-")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
async def servers(run_folder: Path) -> AsyncIterator[EmbeddedServers]:
    """PostgreSQL and Valkey of this test run; nobody else's data is near."""
    from shared.adapters.embedded import EmbeddedServers

    running = EmbeddedServers(run_folder / "servers", durable=False)
    await running.start()
    yield running
    await running.stop()


@dataclass(slots=True, kw_only=True)
class DatabaseServer:
    """Makes databases from a migrated template: copied files take half the time of the log's way.

    It keeps its connection: a new one for each statement costs a third of what a database costs.
    """

    admin_url: str
    _kept: asyncpg.Connection[asyncpg.Record] | None = None
    _one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)

    def url(self, name: str) -> str:
        return self.admin_url.replace("/postgres?", f"/{name}?")

    async def execute(self, statement: str) -> None:
        import asyncpg

        async with self._one_at_a_time:
            if self._kept is None or self._kept.is_closed():
                self._kept = await asyncpg.connect(self.admin_url, timeout=60)
            await self._kept.execute(statement, timeout=60)

    async def create(self, *, template: str) -> str:
        name = f"test_{next(_numbers)}"
        await self.execute(f'create database "{name}" template "{template}" strategy file_copy')
        return name

    async def drop(self, name: str) -> None:
        await self.execute(f'drop database if exists "{name}" with (force)')

    async def close(self) -> None:
        if self._kept is not None:
            await self._kept.close(timeout=60)


@pytest.fixture(scope="session")
async def database_server(servers: EmbeddedServers) -> AsyncIterator[DatabaseServer]:
    assert servers.postgres is not None
    server = DatabaseServer(admin_url=servers.postgres.url("postgres"))
    yield server
    await server.close()


@pytest.fixture(scope="session")
async def migrated_template(database_server: DatabaseServer) -> str:
    from shared.adapters.postgres.db.migrate import migrate

    await database_server.execute(f'create database "{_TEMPLATE}"')
    await migrate(database_server.url(_TEMPLATE))
    return _TEMPLATE


@pytest.fixture
async def database_url(database_server: DatabaseServer, migrated_template: str) -> AsyncIterator[str]:
    """A migrated database that this test alone sees."""
    name = await database_server.create(template=migrated_template)
    yield database_server.url(name)
    await database_server.drop(name)


@pytest.fixture(scope="module")
async def module_database_url(database_server: DatabaseServer, migrated_template: str) -> AsyncIterator[str]:
    """A migrated database that the tests of one module share."""
    name = await database_server.create(template=migrated_template)
    yield database_server.url(name)
    await database_server.drop(name)


@pytest.fixture(scope="session")
def running_provider() -> Iterator[RunningFake]:
    """A strict fake of the model's provider, one process for the run."""
    from tests.kit.fakes.messages_api import running_fake

    fake = running_fake(window=1_000_000)
    fake.start()
    yield fake
    fake.close()


@pytest.fixture(scope="module")
async def provider(running_provider: RunningFake) -> RunningFake:
    """The fake provider, as after its start; reset it before each test."""
    await running_provider.reset()
    return running_provider


@pytest.fixture(scope="module")
def wire() -> str:
    """API that `module_provider` speaks."""
    return "messages"


@pytest.fixture(scope="module")
def module_provider(wire: str) -> Iterator[RunningFake]:
    """A strict fake of a provider for the tests of one module, with the windows of its models."""
    from tests.kit.fakes.messages_api import running_fake

    fake = running_fake(wire=wire)
    fake.start()
    try:
        yield fake
    finally:
        fake.close()


@pytest.fixture
async def fake(module_provider: RunningFake) -> RunningFake:
    await module_provider.reset()
    return module_provider


@pytest.fixture
async def empty_database_url(database_server: DatabaseServer) -> AsyncIterator[str]:
    """A database without any table, for those who test the way there."""
    name = await database_server.create(template="template0")
    yield database_server.url(name)
    await database_server.drop(name)


@pytest.fixture
def pool_size() -> int:
    return 8


@pytest.fixture
async def pool(database_url: str, pool_size: int) -> AsyncIterator[asyncpg.Pool[asyncpg.Record]]:
    from shared.adapters.postgres.db.pool import open_pool

    opened = await open_pool(database_url, size=pool_size)
    yield opened
    await opened.close()


@pytest.fixture
def app_options() -> dict[str, Any]:
    """Settings of `app`; a module overrides them."""
    return {}


@pytest.fixture
def model_options() -> dict[str, Any]:
    """Settings that say who answers: the built-in demo, as long as no provider is named."""
    return {}


@pytest.fixture
def app_tools() -> list[Tool]:
    """Tools that `app` has beside the built-in ones."""
    return []


@pytest.fixture
def rows_by_hand() -> bool:
    """Whether tests write rows that no turn has written: then no invariant is checked at the end."""
    return False


@pytest.fixture
async def app(
    database_url: str, redis_url: str, model_options: dict[str, Any], app_options: dict[str, Any],
    app_tools: list[Tool], rows_by_hand: bool,
) -> AsyncIterator[App]:  # fmt: skip
    """An app of the web role, and the invariants of all that it has stored when it has closed."""
    import asyncpg

    from shared.adapters.postgres.operations.invariants import check_invariants
    from tests.kit.app_driver import running_app, settings_for

    settings = settings_for(database_url, redis_url, **model_options | app_options)
    async with running_app(settings, tools=app_tools) as running:
        yield running
    if not rows_by_hand:
        connection = await asyncpg.connect(database_url, timeout=60)
        try:
            assert await check_invariants(connection) == []
        finally:
            await connection.close(timeout=30)


@pytest.fixture
async def guest(app: App) -> Visit:
    """A visitor of `app`."""
    from tests.kit.app_driver import visit

    return await visit(app)


@pytest.fixture
async def transcriptions() -> AsyncIterator[RunningTranscriptions]:
    """A strict fake of a server that hears."""
    from tests.kit.fakes.transcriptions.harness import RunningTranscriptions

    async with RunningTranscriptions() as service:
        yield service


@pytest.fixture
async def speech() -> AsyncIterator[RunningSpeech]:
    """A strict fake of a server that speaks."""
    from tests.kit.fakes.speech.harness import RunningSpeech

    async with RunningSpeech() as service:
        yield service


@pytest.fixture(scope="module")
async def oidc_process() -> AsyncIterator[RunningProvider]:
    """A strict fake of an OpenID provider."""
    from tests.kit.fakes.oidc.harness import RunningProvider

    async with RunningProvider() as provider:
        yield provider


@pytest.fixture
async def push() -> AsyncIterator[RunningPush]:
    """A strict fake of the push services of browsers."""
    from tests.kit.fakes.push.harness import RunningPush

    async with RunningPush() as service:
        yield service


@pytest.fixture
async def redis_url(servers: EmbeddedServers) -> str:
    """One of the numbered databases, emptied."""
    number = next(_numbers) % (_REDIS_DATABASES - _KEPT_REDIS_DATABASES)
    return await _emptied_redis(servers, _KEPT_REDIS_DATABASES + number)


@pytest.fixture(scope="module")
async def module_redis_url(servers: EmbeddedServers) -> str:
    """The same for all tests of one module."""
    return await _emptied_redis(servers, next(_kept_numbers) % _KEPT_REDIS_DATABASES)


async def _emptied_redis(servers: EmbeddedServers, number: int) -> str:
    from redis.asyncio import Redis

    url = f"{servers.redis_url}?db={number}"
    client = Redis.from_url(url)
    try:
        await client.flushdb()
    finally:
        await client.aclose()
    return url


@pytest.fixture(scope="session")
async def browser() -> AsyncIterator[Browser]:
    """The Chromium of this machine; without one browser tests are skipped, in CI they fail."""
    async with _launched(chromium()) as opened:
        yield opened


@pytest.fixture(scope="session")
async def whole_browser() -> AsyncIterator[Browser]:
    """With a microphone that beeps, for whoever is allowed to hear it."""
    async with _launched(chromium(whole=True), "--use-fake-device-for-media-stream") as opened:
        yield opened


@asynccontextmanager
async def _launched(program: str, *options: str) -> AsyncIterator[Browser]:
    from playwright.async_api import async_playwright

    as_root = ["--no-sandbox"] if sys.platform.startswith("linux") and os.geteuid() == 0 else []
    async with async_playwright() as playwright:
        opened = await playwright.chromium.launch(executable_path=program, args=[*as_root, *options])
        yield opened
        await opened.close()


@pytest.fixture(autouse=True)
def on_the_shared_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices of the day's money have tests of their own; in this process the row is looked at at once."""
    monkeypatch.setattr("shared.adapters.postgres.turns.allowance.LEAST_CALLS", 10**9)
