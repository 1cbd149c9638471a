"""Entry point of `python -m web`: serves chat, widget, pages and REST until SIGTERM.

SIGTERM ends it cleanly: it tells clients to reconnect, finishes running answers and releases the other turns.
"""

from __future__ import annotations

import gc

if __name__ == "__main__":
    # The garbage collector stays off until all modules are loaded: its runs take a fifth of the start.
    gc.disable()
    from shared.supervision.watchdog import start_watchdog

    # The watchdog starts before the large imports, so that it also notices a start that hangs.
    start_watchdog("web")

import asyncio
import sys
from contextlib import suppress
from functools import partial

import structlog
from aiohttp import web

from shared.adapters.models.provider import load_for_first_answer
from shared.adapters.models.routing import open_configured_models
from shared.adapters.models.token_counter import VocabularyCounter
from shared.adapters.redis.counts import RedisCounts
from shared.bootstrap.app import App
from shared.bootstrap.from_settings import build_alert_channels, resolve_server_urls
from shared.bootstrap.logs import configure_logs
from shared.bootstrap.outages import Waiting, run_outage_alerts
from shared.bootstrap.process import EXIT_BAD_SETTINGS, EXIT_CANNOT_START, Ending, run_process
from shared.config.settings import BadSettings, load_settings
from shared.core.values.errors import EvertalkError, StorageUnavailable
from shared.supervision.listening_sockets import keep_listening_sockets, take_listening_sockets
from shared.supervision.spare import wait_as_spare
from web.app import build_web_process
from web.ports import ModelInfo
from web.server.http_server import Listener
from web.server.waiting_room import open_waiting_room

log = structlog.get_logger(__name__)


def main() -> int:
    """Run the web process; return its exit code."""
    if not wait_as_spare(_load_as_spare):
        return 0
    try:
        settings = load_settings()
    except BadSettings as error:
        for problem in error.problems:
            sys.stderr.write(f"evertalk web: {problem}\n")
        return EXIT_BAD_SETTINGS
    configure = partial(configure_logs, process="web")
    return run_process(settings, role="web", configure=configure, work=_serve, waiting=_WAITING)


def _load_as_spare() -> None:
    """Import the SDK of the model provider, unless the built-in demo answers, which needs none."""
    with suppress(BadSettings, EvertalkError, ValueError):
        if open_configured_models(load_settings(), VocabularyCounter()).offline:
            return
    load_for_first_answer()


_WAITING = Waiting(channels=build_alert_channels, room=open_waiting_room)


async def _serve(services: App, ending: Ending) -> int:
    """Serve requests until `ending` is set; return the exit code.

    On a renewal, keep the listening sockets open for the next process.
    """
    settings = services.settings
    process = build_web_process(services, model=_model_of(services))

    warm = asyncio.Event()
    process.readiness.is_warm = warm.is_set
    process.readiness.write_state = lambda: services.heartbeat.write_state
    services.health.count_screens(process.count_screens)

    async def follow() -> None:
        process.follow_settings(model=_model_of(services))

    services.followers.append(follow)
    runner = web.AppRunner(process.app, handle_signals=False, shutdown_timeout=5)
    await runner.setup()
    listener = Listener(runner, is_counted=process.limiter.proxies.is_direct_and_unknown)
    try:
        inherited = take_listening_sockets()
        port = await listener.start(settings.http_host, settings.http_port, sockets=inherited)
    except OSError as error:
        log.error("port_listen_failed", host=settings.http_host, port=settings.http_port, reason=str(error))
        await runner.cleanup()
        return EXIT_CANNOT_START
    services.promotion.on_promotion(process.hub.reset)
    counts = RedisCounts(resolve_server_urls(settings)[1])
    process.start(counts=counts)
    process.tasks.start(warm_up(services, warm))
    process.tasks.run_forever(services.alert_monitor.run_sweeps)
    process.tasks.run_forever(services.alert_monitor.run_sends)
    process.tasks.run_forever(partial(run_outage_alerts, services, lambda: services.alert_monitor.carriers))
    process.tasks.run_forever(partial(services.push.run, process.list_present))
    for remark in services.models.remarks:
        log.warning("model_choice_remark", remark=remark)
    log.info("web_ready", host=settings.http_host, port=port)
    await ending.wait()
    log.info("web_stopping", screens=process.hub.screens)
    process.start_draining()
    await process.stop()
    if ending.renews:
        keep_listening_sockets(listener.list_sockets())
    await listener.stop_listening()
    await runner.cleanup()
    await counts.close()
    return 0


def _model_of(services: App) -> ModelInfo:
    """Return the name of the chat model, and whether it is the built-in demo."""
    return ModelInfo(name=services.models.chat, offline=services.models.offline)


async def warm_up(services: App, warm: asyncio.Event) -> None:
    """Load what a first answer needs, then set `warm`; a database outage is only logged."""
    try:
        await services.warm_up.run()
        await services.announcer.connect()
        await services.sessions.rehearse()
    except StorageUnavailable as error:
        log.warning("rehearsal_failed", reason=str(error))  # the first turn loads what is missing
    finally:
        warm.set()
    log.info("web_warmed_up")


if __name__ == "__main__":
    sys.exit(main())
