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
import sys
from collections.abc import Callable
from functools import partial

import structlog
from aiohttp import web

from bot.telegram.client.aiogram_loader import AiogramLoader
from bot.telegram.outbound.alerts import build_outage_channels
from bot.telegram.runtime.service import TelegramService
from shared.bootstrap.app import App
from shared.bootstrap.logs import configure_logs
from shared.bootstrap.outages import Waiting
from shared.bootstrap.process import EXIT_CANNOT_START, report_refusal, run_process
from shared.config.bots import find_remarks, load_bots
from shared.config.settings import BadSettings, Settings, load_settings

log = structlog.get_logger(__name__)


def main() -> int:
    try:
        settings = load_settings()
    except BadSettings as error:
        return report_refusal("bot", error)
    return run_process(
        settings, role="bot", configure=configure, work=serve, waiting=Waiting(channels=build_outage_channels)
    )


def configure(settings: Settings) -> None:
    """Set up the log, which shows no token. Raises BadSettings for bots that cannot be used."""
    bots = load_bots(settings)
    configure_logs(settings, process="bot", secrets=[bot.token for bot in bots])
    for remark in find_remarks(bots, settings):
        log.warning("bot_configuration_warning", remark=remark)


async def serve(app: App, stop: asyncio.Event, *, load: Callable[[], None] | None = None) -> int:
    """Until `stop`; returns the exit code. `load` imports aiogram."""
    settings = app.settings
    if not (bots := load_bots(settings)):
        log.warning("bot_waits_for_token", advice="Store a token on the dashboard or set TELEGRAM_BOT_TOKEN.")
        await stop.wait()
        return 0
    loader = AiogramLoader(load, on_failed=stop.set)
    service = TelegramService(app, bots, settings=settings, loader=loader)
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
    return EXIT_CANNOT_START if loader.failed else 0


async def _listen(app: App, service: TelegramService, settings: Settings) -> web.AppRunner:
    """For Telegram's posts and a balancer's checks, behind the proxy that holds the certificate."""
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
