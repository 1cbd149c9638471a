"""Runs `evertalk doctor --security`: reviews the setup of a deployment, and prints what to change."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from urllib.parse import urlsplit, urlunsplit

from shared.cli.servers import open_database
from shared.config.settings import Settings
from shared.core.values.errors import StorageUnavailable
from shared.diagnostics.checks import Check, Finding, Level, risk, run_checks, serious
from shared.diagnostics.security_database import read_deployment_rows, review_database
from shared.diagnostics.security_files import review_files
from shared.diagnostics.security_settings import classify_host, is_in_container, review_settings

GRADES: tuple[Level, ...] = ("grave", "serious", "slight")
"""Levels of the security review, the worst first."""
_REDIS_SECONDS = 5.0


def read_doctor_arguments(rest: Sequence[str]) -> argparse.Namespace:
    """Return the parsed arguments; invalid ones print the usage and exit with status 2."""
    parser = argparse.ArgumentParser(
        prog="evertalk doctor", description="Check this installation and print what to do."
    )
    parser.add_argument("--security", action="store_true", help="review the security of the setup instead")
    parser.add_argument("--json", action="store_true", dest="as_json", help="with --security: print JSON")
    found = parser.parse_args(rest)
    if found.as_json and not found.security:
        parser.error("--json goes with --security")
    return found


async def run_review(settings: Settings, *, as_json: bool, say: Callable[[str], None]) -> int:
    """Print the security review as text or JSON; return 1 if a risk is grave, else 0."""
    risks: list[Finding] = []
    levels = await run_checks(
        map(Check, (_check_set_up, _check_rows, _check_redis)), settings, say=risks.append
    )
    risks.sort(key=lambda risk: GRADES.index(risk.level))
    for line in _write_json(risks) if as_json else _write_text(risks):
        say(line)
    return int("grave" in levels)


async def _check_set_up(settings: Settings, url: str) -> Iterable[Finding]:
    return [*review_settings(settings, in_container=is_in_container()), *review_files(settings)]


async def _check_rows(settings: Settings, url: str) -> Iterable[Finding]:
    try:
        async with open_database(settings) as url:
            return list(review_database(settings, await read_deployment_rows(url)))
    except Exception as error:  # noqa: BLE001  whatever it is, the rest of the review is told
        reason = str(error) if isinstance(error, StorageUnavailable) else type(error).__name__
        unknown = serious(
            f"operators, keys, sites and agents could not be checked: {reason}",
            "Unchecked parts may be unsafe.",
            "fix the database with the help of ./evertalk doctor, then review again",
        )
        return [unknown]


async def _check_redis(settings: Settings, url: str) -> Iterable[Finding]:
    """Check that Redis demands the password of REDIS_URL; no finding without a password."""
    parts = urlsplit(settings.redis_url.get_secret_value() if settings.redis_url else "")
    if not parts.password or parts.scheme == "unix":
        return []
    bare = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    if not await _accepts_without_password(bare):
        return []
    return [
        risk(
            "slight" if classify_host(parts.hostname or "") == "here" else "grave",
            f"Redis at {parts.hostname} accepts connections without the password of REDIS_URL",
            "A password that the server does not ask for protects nothing.",
            "set requirepass in Redis, or `ACL SETUSER default off` if you use another user",
        )
    ]


async def _accepts_without_password(url: str) -> bool:
    """Return whether Redis answers a connection without password; False if it cannot be reached."""
    from redis.asyncio import Redis
    from redis.exceptions import RedisError

    from shared.adapters.redis.client import open_redis

    client = open_redis(Redis, url, socket_timeout=_REDIS_SECONDS, socket_connect_timeout=_REDIS_SECONDS)
    try:
        async with asyncio.timeout(_REDIS_SECONDS):
            return bool(await client.ping())
    except (RedisError, OSError, TimeoutError):
        return False
    finally:
        await client.aclose()


def _write_text(risks: Sequence[Finding]) -> Iterator[str]:
    yield from map(str, risks)
    told = ", ".join(f"{count} {grade}" for grade, count in _count(risks).items() if count)
    yield f"\n{told or 'Nothing to change'}. docs/controls.md lists the security controls of Evertalk itself."


def _write_json(risks: Sequence[Finding]) -> Iterator[str]:
    told = [{"grade": one.level, "what": one.what, "why": one.why, "change": one.advice} for one in risks]
    yield json.dumps({"counts": _count(risks), "risks": told}, indent=2)


def _count(risks: Sequence[Finding]) -> dict[Level, int]:
    """Return the number of risks by level."""
    return {grade: sum(risk.level == grade for risk in risks) for grade in GRADES}
