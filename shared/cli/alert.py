"""`evertalk alert test`: a test to everybody whom alerts go to, and what became of it."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Sequence

from shared.bootstrap.operator_services import build_operator_services
from shared.bootstrap.stores import open_stores
from shared.core.identity.operators import COMMAND_LINE
from shared.core.ops.alerts import advice_of
from shared.services.admin.alert_service import NoAlertSender, NoAlertTargets

LOOK_SECONDS = 0.5
"""Seconds between two looks at the outcomes."""
_OPEN = ("due", "sending")


def read_alert_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments; if they are invalid, print a usage line and exit with status 2."""
    parser = argparse.ArgumentParser(
        prog="evertalk alert", description="Check that alerts reach their recipients."
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    verbs.add_parser("test", help="send a test alert to every recipient and show the outcomes")
    return parser.parse_args(arguments)


async def run_alert(
    *,
    database_url: str,
    targets: Sequence[str],
    say: Callable[[str], None],
    wait_seconds: float = 45.0,
) -> int:
    """Store a test alert and wait for its outcomes; return exit status 0 if every target received it, else 1.

    The running Evertalk sends it, so that the whole way is tested. Outcomes are printed within
    `wait_seconds` seconds.
    """
    async with open_stores(database_url) as stores:
        store, service = stores.alerts, build_operator_services(stores).alerts
        try:
            made = await service.send_test(targets, by=COMMAND_LINE, needs_sender=True)
        except NoAlertTargets:
            say("Alerts go to nobody yet: set EVERTALK_ALERT_TELEGRAM_CHATS, _WEBHOOK_URL or _SMTP_URL.")
            return 1
        except NoAlertSender:
            say("Evertalk does not run, and only it sends: start it with ./evertalk up, then try again.")
            return 1
        results = await store.list_results(made)
        for _ in range(max(1, round(wait_seconds / LOOK_SECONDS))):
            if all(state not in _OPEN for _, state, _ in results):
                break
            await asyncio.sleep(LOOK_SECONDS)
            results = await store.list_results(made)
    for target, state, error in results:
        say(_line(target, state, error))
    return 0 if all(state == "sent" for _, state, _ in results) else 1


def _line(target: str, state: str, error: str) -> str:
    told = f"{target}: {'not sent yet' if state in _OPEN else state}"
    if error:
        told += f" ({error}). {advice_of(error)}".rstrip()
    elif state in _OPEN and target.startswith("telegram"):
        told += ". Telegram's messages need the bot process."
    return told
