"""`python -m bot`: the channels that people write to us on, Telegram first, until SIGTERM."""

from __future__ import annotations

import gc

if __name__ == "__main__":
    # Until all that follows is loaded: looking for garbage meanwhile takes a fifth of the start.
    gc.disable()
    from shared.supervision.watchdog import start_watchdog

    # Before anything is imported: the watch-dog is small, and it sees a start that stands still.
    start_watchdog("bot")

import asyncio
import importlib
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import structlog
from aiohttp import web

from shared.bootstrap.app import App
from shared.bootstrap.logs import configure_logs
from shared.bootstrap.outages import Waiting
from shared.bootstrap.process import EXIT_CANNOT_START, report_refusal, run_process
from shared.config.bots import find_remarks, load_bots
from shared.config.settings import BadSettings, Settings, load_settings
from shared.services.admin.alert_sender import AlertChannel

if TYPE_CHECKING:
    from bot.telegram.runtime.service import TelegramService

log = structlog.get_logger(__name__)


def main() -> int:
    try:
        settings = load_settings()
    except BadSettings as error:
        return report_refusal("bot", error)
    return run_process(
        settings, role="bot", configure=configure, work=serve, waiting=Waiting(channels=open_outage_channels)
    )


def configure(settings: Settings) -> None:
    """Set up the log, which shows no token. Raises BadSettings for bots that cannot be used."""
    bots = load_bots(settings)
    configure_logs(settings, process="bot", secrets=[bot.token for bot in bots])
    for remark in find_remarks(bots, settings):
        log.warning("bot_configuration_warning", remark=remark)


async def serve(app: App, stop: asyncio.Event, *, load: Callable[[], None] | None = None) -> int:
    """Until `stop`; returns the exit code. `load` imports the channel."""
    settings = app.settings
    if not (bots := load_bots(settings)):
        log.warning("bot_waits_for_token", advice="Store a token on the dashboard or set TELEGRAM_BOT_TOKEN.")
        await stop.wait()
        return 0
    if not await _load_telegram(app, stop, load or import_telegram):
        return 0 if stop.is_set() else EXIT_CANNOT_START
    from bot.telegram.runtime.service import TelegramService

    service = TelegramService(app, bots, settings=settings)
    server: web.AppRunner | None = None
    try:
        if service.has_webhooks:
            server = await _listen(app, service, settings)
        service.start()
        log.info("bots_started")
        await stop.wait()
        log.info("bots_stopping")
    except OSError as error:
        log.error("port_listen_failed", port=settings.telegram_port, reason=str(error))
        return EXIT_CANNOT_START
    finally:
        if server is not None:
            await server.cleanup()
        await service.close()
    return 0


def import_telegram() -> None:
    importlib.import_module("bot.telegram.runtime.service")


async def _load_telegram(app: App, stop: asyncio.Event, load: Callable[[], None]) -> bool:
    """Import the channel in a thread; return whether it is there and `stop` is not set.

    Two imports at once are both late: what the model needs comes first.
    """

    async def load_in_order() -> None:
        await app.models.wait_until_loaded()
        await asyncio.to_thread(load)

    loading, stopping = asyncio.ensure_future(load_in_order()), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((loading, stopping), return_when=asyncio.FIRST_COMPLETED)
        if stop.is_set():
            return False
        await loading
    except Exception as error:  # noqa: BLE001  whatever a broken installation raises
        log.error(
            "aiogram_load_failed", library="aiogram", reason=repr(error),
            advice="Delete the folder .venv: the next start installs all packages again.",
        )  # fmt: skip
        return False
    finally:
        loading.cancel()
        stopping.cancel()
    return True


def open_outage_channels(settings: Settings) -> Mapping[str, AlertChannel]:
    """Build the channels of alerts about a database that is away; imports them when they are needed."""
    if not settings.alert_telegram_chats:
        return {}
    from bot.telegram.outbound.alerts import build_outage_channels

    return build_outage_channels(settings)


async def _listen(app: App, service: TelegramService, settings: Settings) -> web.AppRunner:
    """Start the HTTP server for Telegram's webhook posts and a load balancer's checks; return its runner.

    It speaks plain HTTP: a proxy in front of it holds the certificate.
    """
    server = web.Application()
    service.add_routes(server)
    server.router.add_get("/readyz", partial(_readyz, app, service))
    runner = web.AppRunner(
        server, handle_signals=False, shutdown_timeout=3, access_log=None, auto_decompress=False
    )
    await runner.setup()
    await web.TCPSite(runner, settings.http_host, settings.telegram_port).start()
    return runner


async def _readyz(app: App, service: TelegramService, request: web.Request) -> web.Response:
    """Report whether this process can store and answer an update: by its newest written beat, when loaded."""
    database = app.heartbeat.write_state
    ready = database == "ok" and service.is_warm
    return web.json_response(
        {"status": "ready" if ready else "not ready", "database": database},
        status=200 if ready else 503,
        headers={"Cache-Control": "no-store"},
    )


if __name__ == "__main__":
    sys.exit(main())
