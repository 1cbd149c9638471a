"""`evertalk doctor --security`: looks at how a deployment is set up, and says what to change."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

from shared.config.settings import Settings
from shared.core.values.errors import StorageUnavailable
from shared.diagnostics.security_database import read_deployment_rows, review_database
from shared.diagnostics.security_files import review_files
from shared.diagnostics.security_findings import GRADES, SecurityFinding, classify_host
from shared.diagnostics.security_settings import is_in_container, review_settings

_REDIS_SECONDS = 5.0
PrintReviewLine = Callable[[str], None]
OpenDatabase = Callable[[Settings], AbstractAsyncContextManager[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorOptions:
    security: bool
    as_json: bool


def read_doctor_arguments(rest: Sequence[str]) -> DoctorOptions:
    """Ends with 2 and a line for what is none."""
    parser = argparse.ArgumentParser(prog="evertalk doctor", description="Check everything; say what to do.")
    parser.add_argument("--security", action="store_true", help="review how safely this is set up, instead")
    parser.add_argument("--json", action="store_true", help="with --security: for programs")
    found = parser.parse_args(rest)
    if found.json and not found.security:
        parser.error("--json goes with --security")
    return DoctorOptions(security=found.security, as_json=found.json)


async def run_review(
    settings: Settings, *, as_json: bool, say: PrintReviewLine, open_database: OpenDatabase
) -> int:
    """1 where something grave was found, else 0."""
    risks = [*review_settings(settings, in_container=is_in_container()), *review_files(settings)]
    risks += await _stored(settings, open_database)
    risks += await _open_redis(settings)
    risks.sort(key=lambda risk: GRADES.index(risk.grade))
    for line in _as_json(risks) if as_json else _as_text(risks):
        say(line)
    return int(any(risk.grade == "grave" for risk in risks))


async def _stored(settings: Settings, open_database: OpenDatabase) -> list[SecurityFinding]:
    try:
        async with open_database(settings) as url:
            return list(review_database(settings, await read_deployment_rows(url)))
    except Exception as error:  # noqa: BLE001  whatever it is, the rest of the review is told
        reason = str(error) if isinstance(error, StorageUnavailable) else type(error).__name__
        unknown = SecurityFinding(
            grade="serious",
            what=f"operators, keys, sites and agents could not be looked at: {reason}",
            why="What is not seen is not known to be safe.",
            change="./evertalk doctor tells what is wrong with the database; then review again",
        )
        return [unknown]


async def _open_redis(settings: Settings) -> list[SecurityFinding]:
    """Where a password is set, whether it is needed."""
    url = urlsplit(settings.redis_url.get_secret_value() if settings.redis_url else "")
    if not url.password or url.scheme == "unix":
        return []
    bare = urlunsplit(url._replace(netloc=url.netloc.rpartition("@")[2]))
    if not await _accepts_without_password(bare):
        return []
    return [
        SecurityFinding(
            grade="slight" if classify_host(url.hostname or "") == "here" else "grave",
            what=f"Redis at {url.hostname} lets in without the password of REDIS_URL, too",
            why="A password that nobody is asked for keeps nobody out.",
            change="requirepass in Redis, or `ACL SETUSER default off` where you use another user",
        )
    ]


async def _accepts_without_password(url: str) -> bool:
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


def _as_text(risks: Sequence[SecurityFinding]) -> Iterator[str]:
    yield from map(str, risks)
    counts = {grade: sum(risk.grade == grade for risk in risks) for grade in GRADES}
    told = ", ".join(f"{count} {grade}" for grade, count in counts.items() if count)
    yield f"\n{told or 'Nothing to change'}. What the program itself keeps is in docs/controls.md."


def _as_json(risks: Sequence[SecurityFinding]) -> Iterator[str]:
    counts = {grade: sum(risk.grade == grade for risk in risks) for grade in GRADES}
    yield json.dumps({"counts": counts, "risks": [dict(risk.to_json) for risk in risks]}, indent=2)
