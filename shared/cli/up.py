"""`evertalk up`: starts servers, migrations and processes in that order, and stops them in reverse."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from shared.adapters.embedded import EmbeddedChoice, EmbeddedServerFailed, EmbeddedServers
from shared.adapters.embedded.atomic_swap import finish_swap
from shared.adapters.embedded.errors import FolderInUse
from shared.adapters.embedded.folders import FolderLock
from shared.adapters.embedded.process_user import find_account, make_account
from shared.adapters.encryption import CannotUnseal
from shared.adapters.meaning.client import fits_socket, has_encoder
from shared.cli.startup.assistant import CannotStart, StartAssistant, open_assistant
from shared.config.bots import BotConfig, load_bots
from shared.config.fields.declaration import ProcessName
from shared.config.settings import (
    ENV_FILE_NAME,
    ORIGINS_NAME,
    BadSettings,
    Settings,
    load_environment,
    resolve_secret_key,
)
from shared.config.stored import StoredSettings, find_locked, list_storable, load_with_stored
from shared.core.values.errors import StorageUnavailable
from shared.supervision.backup_schedule import BackupScheduler
from shared.supervision.child_process import ChildMisconfigured, ChildProcess, build_child_environment
from shared.supervision.process_secrets import select_environment

if TYPE_CHECKING:
    from shared.adapters.postgres.people.stored_settings import PostgresStoredSettings, SettingsNews

_READY_SECONDS = 60.0
_CHILD_STOP_SECONDS = 2.5
_WORKING_STOP_SECONDS = 4.5
"""For the bot and the worker: an answer that is nearly there is brought. All together stays within 10 s."""
_PROBE_SECONDS = 2.0
_LOOK_AGAIN_SECONDS = 2.0
_LOOK_AT_SETTINGS_SECONDS = 1.0
"""Seconds between looks at the stored settings; an announcement shortens them."""
_LEAST_FREE_MB = 100
"""Below it PostgreSQL stops in the middle of something."""


async def up(settings: Settings) -> int:
    """Start servers, migrations and processes, and watch them until Ctrl-C or SIGTERM; return the exit code.

    The code is 0 after a stop, 1 for a failed start or disk, 2 for a bad configuration; the reason is
    printed. Raises BadSettings.
    """
    running = asyncio.create_task(_Supervisor(settings).run())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, running.cancel)
    try:
        await running
    except asyncio.CancelledError:
        print_line("Stopped.")
        return 0
    except FolderInUse as error:
        print_line(f"Evertalk already runs here{f': {error.note}' if error.note else ''}")
        print_line(f"  {error.advice}")
        return 1
    except (CannotStart, EmbeddedServerFailed) as error:
        print_line(f"Evertalk cannot start: {error}")
        print_line(f"  {error.advice}")
        return 1
    except ChildMisconfigured as error:
        print_line(f"Evertalk cannot start: {error}")
        return 2
    except OSError as error:
        print_line(f"Evertalk cannot go on: {error}")
        print_line(
            f"  Is there room, and may you write to {settings.data_dir}? ./evertalk doctor tells more."
        )
        return 1
    return 0


class _Supervisor:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._began = time.monotonic()
        self._servers: EmbeddedServers | None = None
        self._children: dict[str, ChildProcess] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._bots: Sequence[BotConfig] = ()
        self._starting = AsyncExitStack()
        """Process of the start, which ends when people have read that Evertalk is ready."""
        self._everything: Mapping[str, str] = {}
        """Environment with all settings that are in force."""

    async def run(self) -> None:
        self._bots = load_bots(self._settings)
        self._make_data_folder()
        with FolderLock(self._settings.data_dir / "up.lock") as lock:
            self._settings = _with_free_ports(
                self._settings, webhooks=any(bot.mode == "webhook" for bot in self._bots)
            )
            finish_swap(self._settings.data_dir)
            resolve_secret_key(self._settings)
            lock.write_note(self._settings.local_url)
            try:
                await self._start_and_watch()
            finally:
                await self._stop()

    async def _start_and_watch(self) -> None:
        given = build_child_environment({**os.environ, "EVERTALK_DATA_DIR": str(self._settings.data_dir)})
        # First, so that it loads its libraries while the servers start.
        assistant = await self._starting.enter_async_context(open_assistant(given, print_line))
        database_url, redis_url = await self._start_servers()
        await assistant.migrate(self._settings.direct_url(database_url))
        async with _open_stored_settings(database_url, self._settings) as store:
            try:
                found = await store.load()
            except CannotUnseal as error:
                advice = f"{error.advice} ./evertalk settings set NAME asks for it."
                raise CannotStart(f"stored secrets cannot be decrypted: {error}", advice=advice) from error
            self._take(found)
            self._children = self._make_children(database_url, redis_url, found)
            await self._watch_everything(database_url, redis_url, store, found.version, assistant)

    async def _watch_everything(
        self, database_url: str, redis_url: str, store: PostgresStoredSettings, version: int,
        assistant: StartAssistant,
    ) -> None:  # fmt: skip
        try:
            async with asyncio.TaskGroup() as tasks:
                if self._servers is not None:
                    tasks.create_task(self._servers.watch())
                for child in self._children.values():
                    self._running[child.name] = tasks.create_task(child.run())
                tasks.create_task(self._follow(store, version, database_url, redis_url, tasks))
                if self._settings.embedded_postgres and self._settings.backup_keep:
                    tasks.create_task(self._daily().run())
                tasks.create_task(self._announce_when_ready(database_url, assistant))
        except BaseExceptionGroup as group:
            # One reason is enough to stop, and it reads better than a tree of them.
            raise group.exceptions[0] from None

    def _take(self, found: StoredSettings) -> None:
        """Use the stored settings for the next processes; others stay as at the start. Raises BadSettings."""
        if not found.version:
            return
        loaded, locked = load_with_stored(found.values), find_locked()
        fields = (field for name, field in list_storable().items() if name not in locked)
        settings = self._settings.model_copy(update={field: getattr(loaded, field) for field in fields})
        self._bots, self._settings = load_bots(settings), settings

    async def _follow(
        self, store: PostgresStoredSettings, version: int, database_url: str, redis_url: str,
        tasks: asyncio.TaskGroup,
    ) -> None:  # fmt: skip
        """Follow changed settings: give each running process those that it uses."""
        news = await _listen(database_url)
        while True:
            await news.wait(_LOOK_AT_SETTINGS_SECONDS)
            with contextlib.suppress(StorageUnavailable):
                if (seen := await store.load_version()) == version:
                    continue
                try:
                    found = await store.load()
                    self._take(found)
                    version = seen
                except (BadSettings, CannotUnseal) as error:
                    version = seen
                    print_line(f"Stored settings cannot be used, the former ones stay in force: {error}")
                    continue
                wanted = self._make_children(database_url, redis_url, found)
                is_new = "bot" in wanted.keys() - self._children.keys()
                await self._exchange(wanted, tasks)
                if is_new:
                    new = frozenset(bot.bot_id for bot in self._bots)
                    tasks.create_task(self._announce_late(database_url, new))

    async def _exchange(self, wanted: Mapping[str, ChildProcess], tasks: asyncio.TaskGroup) -> None:
        changed = [name for name in {**self._children, **wanted} if self._differs(name, wanted.get(name))]
        if changed:
            print_line(f"Settings were changed: {', '.join(changed)} take them now.")
        await asyncio.gather(*(self._change(name, wanted.get(name), tasks) for name in changed))

    async def _change(self, name: str, wanted: ChildProcess | None, tasks: asyncio.TaskGroup) -> None:
        """Give a running process its settings again; start or stop one that is new or no longer needed."""
        if wanted is not None and (running := self._children.get(name)) is not None:
            await running.give(wanted.environment)
        else:
            await self._replace(name, wanted, tasks)

    def _differs(self, name: str, wanted: ChildProcess | None) -> bool:
        """Return whether the environment differs; sources of settings do not count."""
        mine = self._children.get(name)
        if mine is None or wanted is None:
            return True
        return any(
            mine.environment.get(key) != wanted.environment.get(key)
            for key in {*mine.environment, *wanted.environment} - {ORIGINS_NAME}
        )

    async def _replace(self, name: str, wanted: ChildProcess | None, tasks: asyncio.TaskGroup) -> None:
        """Stop a process after its answers had time to end, and start `wanted` instead, unless None."""
        if (former := self._children.get(name)) is not None:
            running = self._running.pop(name)
            running.cancel()
            await asyncio.wait([running])
            await former.stop(timeout_seconds=_WORKING_STOP_SECONDS)
            del self._children[name]
        if wanted is not None:
            self._children[name] = wanted
            self._running[name] = tasks.create_task(wanted.run())

    async def _start_servers(self) -> tuple[str, str]:
        settings = self._settings
        wanted = EmbeddedChoice(postgres=settings.embedded_postgres, redis=settings.embedded_redis)
        if wanted.postgres or wanted.redis:
            servers = EmbeddedServers(
                settings.data_dir / "servers", wanted=wanted, account=settings.servers_account
            )
            await servers.start()
            self._servers = servers
        return choose_server_urls(settings, self._servers)

    def _make_children(
        self, database_url: str, redis_url: str, found: StoredSettings
    ) -> dict[str, ChildProcess]:
        settings, locked = self._settings, find_locked()
        stored = {name: text for name, text in found.values.items() if name not in locked}
        everything = {
            **stored,
            **load_environment(),
            "DATABASE_URL": database_url,
            "REDIS_URL": redis_url,
            "EVERTALK_DATA_DIR": str(settings.data_dir),
            "EVERTALK_HTTP_PORT": str(settings.http_port),
            "EVERTALK_TELEGRAM_PORT": str(settings.telegram_port),
            "EVERTALK_SECRET_KEY": resolve_secret_key(settings).decode(),
        }
        self._everything = build_child_environment({**everything, ENV_FILE_NAME: ""})
        tokens = {bot.token_name for bot in self._bots}
        names: list[ProcessName] = ["web", "worker", *(("bot",) if self._bots else ())]
        return self._make_encoder() | {
            name: ChildProcess(
                name=name,
                environment={
                    **build_child_environment(
                        select_environment(name, everything, tokens=tokens, stored=stored)
                    ),
                    "EVERTALK_PROCESS_FILE": str(settings.data_dir / f"{name}.worker"),
                },
                folder=settings.data_dir,
                say=print_line,
                keeps_spare=name == "web",
            )
            for name in names
        }

    def _make_encoder(self) -> dict[str, ChildProcess]:
        """Return the process of the encoder, which gets no settings; nothing without the extra."""
        settings = self._settings
        elsewhere = settings.embeddings_url is not None or settings.meaning_socket is not None
        if elsewhere or not (settings.meaning and has_encoder() and fits_socket(settings.encoder_socket)):
            return {}
        given = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        command = (sys.executable, "-m", "shared.adapters.meaning.process", str(settings.encoder_socket))
        return {
            "meaning": ChildProcess(
                name="meaning",
                command=command,
                environment=build_child_environment(given),
                folder=settings.data_dir,
                say=print_line,
            )
        }

    def _daily(self) -> BackupScheduler:
        given = {**os.environ, "EVERTALK_DATA_DIR": str(self._settings.data_dir)}
        return BackupScheduler(build_child_environment(given), print_line)

    async def _announce_when_ready(self, database_url: str, assistant: StartAssistant) -> None:
        patience = _READY_SECONDS
        while not await _is_ready(self._settings):
            if time.monotonic() - self._began > patience:
                logs = self._settings.data_dir / "logs"
                print_line(f"Not ready after {patience:.0f} s, still waiting. The logs in {logs} say why.")
                patience += _READY_SECONDS
            await asyncio.sleep(0.1)
        seconds = time.monotonic() - self._began
        try:
            late = await assistant.greet(self._everything, seconds=seconds)
        except CannotStart as error:
            # People can talk already, so what cannot be printed ends nothing.
            print_line(f"Evertalk is ready ({seconds:.1f} s): {self._settings.base_url}/chat")
            print_line(f"  Its other lines cannot be shown: {error}. {error.advice}")
            print_line("  Ctrl-C stops everything.")
            late = frozenset(bot.bot_id for bot in self._bots)
        await self._starting.aclose()
        await self._announce_late(database_url, late)

    async def _announce_late(self, database_url: str, late: frozenset[int]) -> None:
        """Print the link of each bot that reaches Telegram late: the first owner needs it."""
        while late:
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)
            with contextlib.suppress(StorageUnavailable, CannotStart, OSError):
                if await _has_reached_telegram(database_url, late):
                    async with open_assistant(self._everything, print_line) as assistant:
                        late = await assistant.announce(self._everything, late)

    async def _stop(self) -> None:
        """Stop processes: those that create work first, servers last."""
        if self._children:
            print_line("Stopping …")
        await self._starting.aclose()
        last = [child for child in self._children.values() if child.name == "web"]
        first = [child for child in self._children.values() if child.name != "web"]
        for group, seconds in ((first, _WORKING_STOP_SECONDS), (last, _CHILD_STOP_SECONDS)):
            await asyncio.gather(*(child.stop(timeout_seconds=seconds) for child in group))
        if self._servers is not None:
            await self._servers.stop()

    def _make_data_folder(self) -> None:
        folder = self._settings.data_dir
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if folder.stat().st_uid == os.geteuid():
                self._close_to_others(folder)
        except OSError as error:
            raise CannotStart(
                f"the data folder {folder} cannot be used: {error.strerror}",
                advice="Set EVERTALK_DATA_DIR to a folder that you may write to.",
            ) from None
        free = shutil.disk_usage(folder).free // 10**6
        if free < _LEAST_FREE_MB:
            raise CannotStart(
                f"the disk of {folder} is full: {free} MB are free, and {_LEAST_FREE_MB} MB are needed",
                advice="Make room, or set EVERTALK_DATA_DIR to a folder on another disk.",
            )

    def _close_to_others(self, folder: Path) -> None:
        """Close the data folder to other accounts, except that of embedded servers which root starts."""
        settings = self._settings
        if not (settings.embedded_postgres or settings.embedded_redis):
            folder.chmod(0o700)
            return
        make_account(settings.servers_account)
        servers = folder / "servers"
        account = find_account(servers if servers.exists() else folder, settings.servers_account)
        account.let_through(folder)


def _open_stored_settings(
    database_url: str, settings: Settings
) -> AbstractAsyncContextManager[PostgresStoredSettings]:
    """Imported late, as whatever speaks with PostgreSQL."""
    from shared.bootstrap.stored_settings import open_stored_settings

    return open_stored_settings(database_url, settings)


async def _listen(database_url: str) -> SettingsNews:
    """Imported late, as whatever speaks with PostgreSQL."""
    from shared.adapters.postgres.people.stored_settings import SettingsNews

    return SettingsNews(database_url)


async def _has_reached_telegram(database_url: str, bots: frozenset[int]) -> bool:
    """Return whether one of the bots has reached Telegram. Raises StorageUnavailable."""
    from shared.bootstrap.stored_settings import open_telegram_bots

    async with open_telegram_bots(database_url) as store:
        states = await store.list_bots()
    return any(state.bot_id in bots and state.username for state in states)


def choose_server_urls(settings: Settings, servers: EmbeddedServers | None) -> tuple[str, str]:
    """Return the URLs of PostgreSQL and Redis: the operator's, else those of the embedded servers.

    `servers` may be None only if the operator has set both.
    """
    database, redis = settings.database_url, settings.redis_url
    if database is not None and redis is not None:
        return database.get_secret_value(), redis.get_secret_value()
    assert servers is not None
    return (
        database.get_secret_value() if database else servers.database_url,
        redis.get_secret_value() if redis else servers.redis_url,
    )


def print_line(line: str) -> None:
    """Print a line on standard output at once."""
    print(line, flush=True)


def _with_free_ports(settings: Settings, *, webhooks: bool) -> Settings:
    """Replace port 0 by a free one. Raises CannotStart if a port is taken."""
    ports = {"http_port": _free_port(settings.http_host, settings.http_port, "EVERTALK_HTTP_PORT")}
    if webhooks and settings.http_port == settings.telegram_port != 0:
        raise CannotStart(
            f"EVERTALK_HTTP_PORT and EVERTALK_TELEGRAM_PORT are both {settings.http_port}",
            advice="In webhook mode each needs a port of its own: set one of them to another number.",
        )
    if webhooks:
        found = _free_port("127.0.0.1", settings.telegram_port, "EVERTALK_TELEGRAM_PORT")
        ports["telegram_port"] = found
    return settings.model_copy(update=ports)


def _free_port(host: str, port: int, setting: str) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise CannotStart(
                f"port {port} on {host} cannot be used: {error.strerror}",
                advice=f"Stop what listens there, or set {setting} to another number.",
            ) from None
        return int(probe.getsockname()[1])


async def _is_ready(settings: Settings) -> bool:
    """Ask the web process itself, the way a load balancer would."""
    address = urlsplit(settings.local_url)
    with contextlib.suppress(OSError, TimeoutError, ValueError):
        async with asyncio.timeout(_PROBE_SECONDS):
            reader, writer = await asyncio.open_connection(address.hostname, address.port)
            try:
                request = f"GET /readyz HTTP/1.1\r\nHost: {address.netloc}\r\nConnection: close\r\n\r\n"
                writer.write(request.encode())
                status = await reader.readline()
            finally:
                writer.close()
            return status.split()[1:2] == [b"200"]
    return False


def run_up(settings: Settings) -> int:
    """Run `up` in a new event loop; return its exit code, 2 after printing each problem of bad settings."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    try:
        return asyncio.run(up(settings))
    except BadSettings as error:
        for problem in error.problems:
            print_line(f"evertalk: {problem}")
        return 2
