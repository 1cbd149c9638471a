"""Runs a process: event loop, signals, services and settings, and its renewal after changed settings."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import structlog

from shared.adapters.encryption import CannotUnseal
from shared.adapters.models.catalog import ModelsFileBroken
from shared.adapters.postgres.db.readiness import SchemaRefused
from shared.bootstrap.app import App, open_app
from shared.bootstrap.configured_parts import Role
from shared.bootstrap.followed_settings import ChangeFollower, build_follower, load_followed_settings
from shared.bootstrap.logs import configure_logs
from shared.bootstrap.outages import Waiting, wait_for_writes
from shared.bootstrap.settings_change import follow_settings
from shared.config.settings import BadSettings, Settings
from shared.core.session.policy import ContradictoryPolicy
from shared.core.values.errors import EvertalkError, StorageUnavailable
from shared.runtime import freeze_loaded_objects
from shared.supervision.watchdog import start_watchdog

log = structlog.get_logger(__name__)

EXIT_BAD_SETTINGS = 2
"""Exit code for settings that the process cannot use; the supervisor does not start it again."""
EXIT_CANNOT_START = 3
"""Exit code if the process could not be built, such as without its database; another start may succeed."""
EXIT_REPLACED = 4
"""Exit code after the database has declared this process dead; its next start registers it under another
id.
"""

EXIT_SETTINGS_CHANGED = 5
"""Exit code if changed settings need a new process, and this one could not replace itself.

The supervisor starts it again.
"""

RENEWS_BOT = frozenset({
    "EVERTALK_ALERT_TELEGRAM_CHATS", "EVERTALK_HANDOVER", "EVERTALK_TIMEZONE", "EVERTALK_TRANSCRIBE_URL",
    "EVERTALK_SPEECH_URL", "EVERTALK_TRANSCRIBE_MOST_MINUTES", "EVERTALK_TRANSCRIBE_MOST_MB",
})  # fmt: skip
"""Settings, besides those with TELEGRAM in their name, that the bot process reads only at its start."""
CONFIGURATION_ERRORS = (BadSettings, CannotUnseal, ContradictoryPolicy, ModelsFileBroken, SchemaRefused)
"""Errors in the configuration, which end the process with `EXIT_BAD_SETTINGS`; another start would fail,
too.
"""


class Ending(asyncio.Event):
    """Event that is set when the process must end; `renews` is True if a new process is to replace it."""

    def __init__(self) -> None:
        super().__init__()
        self.renews = False

    def end(self) -> None:
        """Set the event; the process ends without a renewal, even if a renewal was requested before."""
        self.renews = False
        self.set()

    def renew(self) -> None:
        """Set the event and request a new process in place of this one; does nothing if the event is set
        already.
        """
        if not self.is_set():
            self.renews = True
            self.set()


ProcessMain = Callable[[App, Ending], Awaitable[int]]
"""Function that does the work of a process until the event is set, and returns the exit code."""
Configure = Callable[[Settings], None]
"""Function that sets up the log with the settings in force.

Raises BadSettings for settings that the process cannot use.
"""


def run_process(
    settings: Settings, *, role: Role, configure: Configure, work: ProcessMain, waiting: Waiting | None = None
) -> int:
    """Run a process until SIGTERM or SIGINT; return its exit code.

    It starts the watchdog, builds the services and follows stored settings; if a change needs it, a new
    program replaces this one under the same process id. `configure` sets up the log. `waiting` says what to
    do while the process waits for its database; None means nothing.
    """
    board = start_watchdog(role)
    board.set_folder(str(settings.data_dir))
    freeze_loaded_objects()
    with asyncio.Runner(loop_factory=None if role == "worker" else _get_loop_factory()) as runner:
        board.install(runner.get_loop())
        try:
            code = runner.run(_serve(settings, role, configure, work, waiting or Waiting()))
        finally:
            board.begin_to_close()
    if code == EXIT_SETTINGS_CHANGED:
        _begin_again()
    return code


def _begin_again() -> None:
    """Replace this process by a new one with the same process id; return only if the system refuses that."""
    sys.stdout.flush()
    sys.stderr.flush()
    with suppress(OSError):
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - our own program


def _get_loop_factory() -> Any:
    """Return the factory of uvloop's event loop; None if uvloop is not installed."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _serve(
    settings: Settings, role: Role, configure: Configure, work: ProcessMain, waiting: Waiting
) -> int:
    configure_logs(settings, process=role)
    ending = Ending()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, ending.end)
    try:
        followed = await load_followed_settings(settings, role=role)
        settings = followed.settings
        configure(settings)
        app = await open_app(settings, role=role)
    except CONFIGURATION_ERRORS as error:
        return report_refusal(role, error)
    except (EvertalkError, OSError, ValueError) as error:
        log.error("cannot_start", reason=str(error))
        if isinstance(error, StorageUnavailable):
            await wait_for_writes(settings, ending, waiting)
        return EXIT_CANNOT_START
    follower = build_follower(app.pool, followed, role=role)
    watching = [
        asyncio.create_task(_stop_when_lost(app, ending)),
        asyncio.create_task(_follow_changes(app, follower, ending)),
    ]
    try:
        code = await work(app, ending)
    finally:
        for task in watching:
            task.cancel()
        await asyncio.wait(watching)
        if follower is not None:
            await follower.close()
        await app.close()
    if app.heartbeat.is_lost:
        return EXIT_REPLACED
    # A signal that arrived during closing is handled here; a later one ends the process at once.
    await asyncio.sleep(0)
    asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)
    return EXIT_SETTINGS_CHANGED if ending.renews and not code else code


async def _stop_when_lost(app: App, ending: Ending) -> None:
    await app.heartbeat.lost.wait()
    log.error("process_replaced", worker_id=app.worker_id)
    ending.end()


async def _follow_changes(app: App, follower: ChangeFollower | None, ending: Ending) -> None:
    """Apply each change of settings to later turns, until a change needs a new process.

    That is the case if it cannot be applied, and in the bot for settings of Telegram and those in
    `RENEWS_BOT`, which are applied before. Without a `follower` nothing is done.
    """
    while follower is not None:
        change = await follower.wait_for_change()
        try:
            await follow_settings(app, change.settings)
        except Exception as error:
            log.exception("settings_not_followed", names=change.names, reason=str(error))
            ending.renew()
            return
        log.info("settings_followed", names=change.names)
        if app.role == "bot" and any(name in RENEWS_BOT or "TELEGRAM" in name for name in change.names):
            ending.renew()
            return


def report_refusal(role: Role, error: Exception) -> int:
    """Print the error and its advice on standard error, for the supervisor to show; return
    `EXIT_BAD_SETTINGS`.
    """
    advice = getattr(error, "advice", "")
    for line in f"{error}\n{advice}".strip().splitlines():
        sys.stderr.write(f"evertalk {role}: {line}\n")
    return EXIT_BAD_SETTINGS
