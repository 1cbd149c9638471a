"""Over TLS with an authority of its own, Redis serves every client or none: arq, announcer, doctor."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from redis.asyncio import Redis
from structlog.testing import capture_logs

from shared.adapters.redis.announcer import RedisAnnouncer
from shared.adapters.redis.arq_queue import ArqDoorbell, open_queue
from shared.config.settings import BadSettings, load_settings
from shared.core.session.turns import DueJob
from shared.diagnostics.checks import Finding
from shared.diagnostics.doctor import REDIS
from tests.integration.external_servers.certificates import Authority
from tests.integration.external_servers.tls_front import tls_front
from tests.kit.app_driver import running_app, settings_for, visit
from worker.jobs import run_arq, sweep

USER, PASSWORD = "evertalk", "a pass/word@"
_QUOTED = "a%20pass%2Fword%40"


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    port: int
    authority: Authority
    database: int

    def url(self, host: str = "localhost", **query: object) -> str:
        asked = {"ssl_ca_certs": self.authority.file, **query}
        words = "&".join(f"{name}={value}" for name, value in asked.items() if value)
        return f"rediss://{USER}:{_QUOTED}@{host}:{self.port}/{self.database}?{words}"


@pytest.fixture
async def secured(redis_url: str, tmp_path: Path) -> AsyncIterator[Front]:
    """Of a Valkey that lets in by a name and a password with signs in it, too."""
    authority, parts = Authority(tmp_path), urlsplit(redis_url)
    admin = Redis.from_url(redis_url)
    await admin.execute_command("ACL", "SETUSER", USER, "on", f">{PASSWORD}", "~*", "&*", "+@all")
    async with tls_front(Path(parts.path), authority.sign("redis", hosts=("localhost",))) as port:
        yield Front(port=port, authority=authority, database=int(parts.query.removeprefix("db=")))
    await admin.execute_command("ACL", "DELUSER", USER)
    await admin.aclose()


async def doctor_says(url: str) -> Finding:
    (finding,) = await REDIS.run(load_settings(), url)
    return finding


async def test_jobs_and_answers_go_over_tls(database_url: str, secured: Front) -> None:
    url = secured.url()
    assert (await doctor_says(url)).level == "ok"
    with capture_logs() as logs:
        async with running_app(settings_for(database_url, url)) as app:
            working = [asyncio.ensure_future(run_arq(app)), asyncio.ensure_future(sweep(app))]
            guest = await visit(app)
            assert await guest.ask("Hello over TLS")
            await _heard(url, app.announcer, guest.session_id)
            assert await _carried_out(url)
            for work in working:
                work.cancel()
            await asyncio.wait(working)
            assert app.doorbell.silent == 0
    away = {
        "redis_disconnected",
        "job_announcement_failed",
        "announcement_lost",
        "announcements_not_received",
    }
    assert not [line for line in logs if line["event"] in away]


async def _heard(url: str, announcer: Any, session_id: int) -> None:
    """What one process says, another hears."""
    other = RedisAnnouncer(url)
    heard: asyncio.Queue[Mapping[str, Any]] = asyncio.Queue()

    async def listen() -> None:
        async for _, message in other.listen():
            heard.put_nowait(message)

    listening = asyncio.ensure_future(listen())
    try:
        async with asyncio.timeout(20):
            while not other.connected:
                await asyncio.sleep(0.01)
            await other.subscribe([session_id])
            await announcer.announce(session_id, {"t": "here"})
            assert await heard.get() == {"t": "here"}
    finally:
        listening.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await listening
        await other.close()


async def _carried_out(url: str) -> bool:
    """A job that is rung for leaves the queue by arq's own worker."""
    bell = ArqDoorbell(url)
    assert await bell.ring(DueJob(id=10**12, kind="flush"))
    client = open_queue(url)
    try:
        async with asyncio.timeout(20):
            while await client.zcard("evertalk:jobs"):
                await asyncio.sleep(0.05)
        return True
    finally:
        await client.aclose()
        await bell.close()


@pytest.mark.parametrize("way", ["no authority", "a rival's authority", "another name"])
async def test_doctor_is_content_when_arq_is_and_only_then(secured: Front, tmp_path: Path, way: str) -> None:
    url = {
        "no authority": secured.url(ssl_ca_certs=""),
        "a rival's authority": secured.url(ssl_ca_certs=Authority(tmp_path, "rival").file),
        "another name": secured.url("127.0.0.1"),
    }[way]
    bell = ArqDoorbell(url)
    assert not await bell.ring(DueJob(id=1, kind="flush"))
    assert (await doctor_says(url)).level == "fail"
    await bell.close()


async def test_names_of_hosts_may_be_left_unchecked(secured: Front) -> None:
    for url in (secured.url("127.0.0.1", ssl_check_hostname="false"), secured.url(ssl_cert_reqs="none")):
        bell = ArqDoorbell(url)
        assert await bell.ring(DueJob(id=2, kind="flush", attempt=len(url)))
        assert (await doctor_says(url)).level == "ok"
        await bell.close()


def test_a_word_that_no_client_knows_is_refused_at_the_start() -> None:
    with pytest.raises(BadSettings, match="says ssl_ca_cert, which means nothing"):
        load_settings(redis_url="rediss://redis.example.org/0?ssl_ca_cert=/etc/ca.pem")
