"""Steps of a start: the newest schema, and the lines that people need when Evertalk is ready."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

import asyncpg
from sqlalchemy.exc import SQLAlchemyError

from shared.adapters.meaning.client import fits_socket, has_encoder
from shared.adapters.postgres.db.migrate import migrate, read_schema_state
from shared.adapters.postgres.db.readiness import SchemaRefused, Standing
from shared.adapters.postgres.people.operator_auth import create_login_link
from shared.cli.backup import BackupFailed, make_backup
from shared.cli.model_discovery import describe_models
from shared.cli.operator import build_login_url
from shared.cli.pairing import describe_bots
from shared.cli.startup.assistant import CannotStart
from shared.config.bots import BotConfig, find_remarks
from shared.config.settings import Settings
from shared.core.values.errors import StorageUnavailable

_ENROLMENT_SECONDS = 5.0
"""Seconds to wait for a bot to reach Telegram before the other lines are printed."""

Say = Callable[[str], object]
"""Function that prints a line."""


async def migrate_with_backup(settings: Settings, database_url: str, *, say: Say) -> None:
    """Migrate the database to the newest schema, after a backup if an older one is there.

    A newer schema is only reported; with 0 backups to keep, none is made. Raises CannotStart.
    """
    try:
        state = await read_schema_state(database_url)
        state.refuse()
        if state.standing is Standing.NEWER:
            say(state.describe_change())
        elif state.standing is Standing.OLDER and settings.backup_keep:
            await _back_up_first(settings, database_url, say, f"{state.found} → {state.newest}")
        await migrate(database_url)
    except (StorageUnavailable, SchemaRefused) as error:
        raise CannotStart(str(error), advice=error.advice) from error
    except (OSError, asyncpg.PostgresError, SQLAlchemyError) as error:
        where = urlsplit(database_url)
        raise CannotStart(
            f"PostgreSQL at {where.hostname or 'its socket'} cannot be used: {error}",
            advice="Is DATABASE_URL right, and does that server run? ./evertalk doctor tells more.",
        ) from error


async def _back_up_first(settings: Settings, database_url: str, say: Say, change: str) -> None:
    try:
        made = await make_backup(settings, database_url, folder=settings.backups, rotate=False)
    except BackupFailed as error:
        raise CannotStart(
            f"the schema is to change ({change}), and {error}",
            advice=f"{error.advice} EVERTALK_BACKUP_KEEP=0 starts without a backup.",
        ) from error
    say(f"Schema {change}: what was there before is in {made.path}")


async def greet(
    settings: Settings, bots: Sequence[BotConfig], *, seconds: float, say: Say
) -> tuple[BotConfig, ...]:
    """Print that Evertalk is ready, with its addresses and a new login link; return bots that have not
    reached Telegram.

    Waits up to 5 seconds for the bots. `seconds` is how long the start took.
    """
    database_url = settings.database_url.get_secret_value() if settings.database_url else ""
    lines, late = await describe_bots(database_url, bots, seconds=_ENROLMENT_SECONDS)
    telegram = [*lines, *(f"the bot of {bot.token_name} has not reached Telegram yet" for bot in late)]
    for line in await _summary(settings, database_url, seconds, telegram):
        say(line)
    for remark in (*find_remarks(tuple(bots), settings), *_remarks_on_root()):
        say(f"\n  Mind: {remark}")
    return late


async def announce_bots(settings: Settings, bots: Sequence[BotConfig], *, say: Say) -> tuple[BotConfig, ...]:
    """Print the links of the bots that have reached Telegram; return the others, without waiting."""
    database_url = settings.database_url.get_secret_value() if settings.database_url else ""
    lines, late = await describe_bots(database_url, bots, seconds=0)
    for line in _label_lines("Telegram", lines):
        say(line)
    return late


async def _summary(
    settings: Settings, database_url: str, seconds: float, telegram: Sequence[str]
) -> list[str]:
    token = await create_login_link(database_url)
    return [
        f"Evertalk is ready ({seconds:.1f} s).",
        "",
        f"  Chat       {settings.base_url}/chat",
        f"  Dashboard  {build_login_url(settings, token)}",
        "             (this link works once; ./evertalk login-link makes another)",
        *_label_lines("Telegram", telegram),
        *(f"  {label:<10} {line}" for label, line in await describe_models(settings)),
        f"  Spending   {describe_caps(settings)}",
        f"  Recall     {describe_recall(settings)}",
        f"  Data       {settings.data_dir} (logs in {settings.data_dir / 'logs'})",
        "",
        "  Ctrl-C stops everything.",
    ]


def _label_lines(label: str, lines: Sequence[str]) -> list[str]:
    return [f"  {label if number == 0 else '':<10} {line}" for number, line in enumerate(lines)]


def describe_caps(settings: Settings) -> str:
    """Return the spending caps as text for the terminal."""
    caps = [f"at most ${settings.cap_total_per_day_usd:.2f} a day in all"]
    if settings.cap_person_per_day_usd is not None:
        caps.append(f"${settings.cap_person_per_day_usd:.2f} a day per person")
    if settings.cap_session_usd is not None:
        caps.append(f"${settings.cap_session_usd:.2f} per conversation")
    if settings.profile == "public":
        caps.append(f"${settings.cap_visitor_per_day_usd:.2f} a day per visitor")
    return ", ".join(caps)


def describe_recall(settings: Settings) -> str:
    """Return as text whether recall finds words only or meanings, too, and why."""
    if settings.embeddings_url is not None:
        return "finds words, and what was meant (EVERTALK_EMBEDDINGS_URL)"
    if not settings.meaning:
        return "finds words (EVERTALK_MEANING is off)"
    if settings.meaning_socket is None and not has_encoder():
        return "finds words; ./evertalk install meaning lets it find what was meant (90 MB of memory)"
    if not fits_socket(settings.encoder_socket):
        return "finds words; the path of the data folder is too long for the socket of the encoder"
    return "finds words, and what was meant"


def _remarks_on_root() -> Sequence[str]:
    if os.geteuid() != 0:
        return ()
    return ("this runs as root. An account of its own is safer: ./evertalk service install --account NAME",)
