"""Entry point of `python -m bot`: serves the Telegram bots until SIGTERM."""

from __future__ import annotations

import gc

if __name__ == "__main__":
    # The garbage collector stays off until all modules are loaded: its runs take a fifth of the start.
    gc.disable()
    from shared.supervision.watchdog import start_watchdog

    # The watchdog starts before the large imports, so that it also notices a start that hangs.
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
    """Run the bot process until SIGTERM; return its exit code."""
    try:
        settings = load_settings()
    except BadSettings as error:
        return report_refusal("bot", error)
    return run_process(
        settings, role="bot", configure=configure, work=serve, waiting=Waiting(channels=open_outage_channels)
    )


def configure(settings: Settings) -> None:
    """Set up the log, which masks bot tokens, and log a warning for each doubtful bot setting.

    Raises BadSettings if the settings of a bot are invalid.
    """
    bots = load_bots(settings)
    configure_logs(settings, process="bot", secrets=[bot.token for bot in bots])
    for remark in find_remarks(bots, settings):
        log.warning("bot_configuration_warning", remark=remark)


async def serve(app: App, stop: asyncio.Event, *, load: Callable[[], None] | None = None) -> int:
    """Run the Telegram bots until `stop` is set; return the exit code of the process.

    `load` imports the Telegram modules; None means `import_telegram`. Without a configured bot, only wait for
    `stop`.
    """
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
    """Import aiogram and the Telegram modules, which takes about half a second."""
    importlib.import_module("bot.telegram.runtime.service")


async def _load_telegram(app: App, stop: asyncio.Event, load: Callable[[], None]) -> bool:
    """Import the Telegram modules in a thread; return False if that failed or `stop` was set meanwhile.

    Waits for the import of the model client first: two imports at the same time would delay both.
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
    """Return the senders of alerts for when the database is unavailable, by channel name.

    Empty without alert chats. Imports the Telegram modules on the first call.
    """
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
    server.router.add_get("/readyz", partial(_answer_readyz, app, service))
    runner = web.AppRunner(
        server, handle_signals=False, shutdown_timeout=3, access_log=None, auto_decompress=False
    )
    await runner.setup()
    await web.TCPSite(runner, settings.http_host, settings.telegram_port).start()
    return runner


async def _answer_readyz(app: App, service: TelegramService, request: web.Request) -> web.Response:
    """Answer a readiness check: 200 if the newest heartbeat was stored and the bot is warmed up, else 503."""
    database = app.heartbeat.write_state
    ready = database == "ok" and service.is_warm
    return web.json_response(
        {"status": "ready" if ready else "not ready", "database": database},
        status=200 if ready else 503,
        headers={"Cache-Control": "no-store"},
    )


if __name__ == "__main__":
    sys.exit(main())
