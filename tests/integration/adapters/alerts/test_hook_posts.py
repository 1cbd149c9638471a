"""The compaction hook over HTTP: signed, to public addresses or this machine, within bounds."""

from __future__ import annotations

import gzip
import ipaddress
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from shared.adapters.alerts.compaction_hook import CompactionHook
from shared.core.compaction.hooks import MOST_ANSWER_BYTES, wants_skip
from shared.core.ops.alerts import AlertRefused, NotSent, Sent
from tests.kit.builders import hook_message as build_message
from tests.kit.fakes.hook_receiver import HookProcess, hook_process

SECRET = "s" * 32


@pytest.fixture(scope="module")
async def posted() -> AsyncIterator[HookProcess]:
    async with hook_process(SECRET) as running:
        yield running


def hook(url: str, **more: Any) -> CompactionHook:
    return CompactionHook(url, SECRET, **more)


async def test_strict_receiver_takes_a_message_and_its_repetition(posted: HookProcess) -> None:
    await posted.plan({"status": 500}, {"body": '{"skip": true}'})
    assert await hook(posted.url).send(build_message(), seconds=5) == (NotSent(code="http_500"), b"{}")
    outcome, answer = await hook(posted.url).send(build_message(attempts=2), seconds=5)
    assert (outcome, wants_skip(answer)) == (Sent(), True)
    messages, faults = await posted.list_told()
    assert faults == []
    assert messages[-1] == messages[-2]
    assert messages[-1]["type"] == "compaction.before"


async def test_receiver_with_another_secret_refuses_a_hook(posted: HookProcess) -> None:
    outcome, _ = await CompactionHook(posted.url, "t" * 32).send(build_message(), seconds=5)
    assert outcome == AlertRefused(code="http_401")


@pytest.mark.control("S26")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirect_of_a_hook_is_not_followed(posted: HookProcess, status: int) -> None:
    before = len((await posted.list_told())[0])
    await posted.plan({"status": status, "location": posted.url, "body": '{"skip": true}'})
    outcome, _ = await hook(posted.url).send(build_message(), seconds=5)
    assert outcome == AlertRefused(code=f"http_{status}")
    assert len((await posted.list_told())[0]) == before + 1


async def test_slow_receiver_of_a_hook_is_given_up_at_the_bound(posted: HookProcess) -> None:
    await posted.plan({"seconds": 30, "body": '{"skip": true}'})
    assert await hook(posted.url).send(build_message(), seconds=0.2) == (NotSent(code="timeout"), b"")


@pytest.mark.control("S26")
@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("https://hooks.example.org/x", "10.0.0.1"),
        ("https://hooks.example.org/x", "127.0.0.1"),
        ("https://hooks.example.org/x", "169.254.169.254"),
        ("https://hooks.example.org/x", "100.64.0.1"),
        ("https://hooks.example.org/x", "::1"),
        ("https://hooks.example.org/x", "fd00::1"),
        ("https://hooks.example.org/x", "::ffff:192.168.1.1"),
        ("https://hooks.example.org/x", "64:ff9b::a00:1"),
        ("https://192.168.1.1/x", "192.168.1.1"),
        ("https://2130706433/x", "8.8.8.8"),
        ("https://intern.local/x", "8.8.8.8"),
        ("http://hooks.example.org/x", "8.8.8.8"),
        ("http://localhost/x", "8.8.8.8"),
        ("https://name:secret@hooks.example.org/x", "8.8.8.8"),
        ("file:///etc/passwd", "8.8.8.8"),
    ],
)
async def test_hook_never_posts_into_the_network_around(url: str, address: str) -> None:
    async def resolve(host: str, port: int) -> list[Any]:
        return [ipaddress.ip_address(address)]

    outcome, _ = await hook(url, resolve=resolve).send(build_message(), seconds=5)
    assert outcome == AlertRefused(code="address_refused")


@pytest.mark.control("S26")
async def test_hook_is_refused_when_one_of_several_addresses_is_private() -> None:
    async def resolve(host: str, port: int) -> list[Any]:
        return [ipaddress.ip_address("8.8.8.8"), ipaddress.ip_address("10.0.0.1")]

    outcome, _ = await hook("https://hooks.example.org/x", resolve=resolve).send(build_message(), seconds=5)
    assert outcome == AlertRefused(code="address_refused")


async def test_receiver_that_is_away_is_tried_again() -> None:
    async with hook_process(SECRET) as gone:
        url = gone.url
    assert (await hook(url).send(build_message(), seconds=5))[0] == NotSent(code="no_connection")


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b'{"skip": true, "x": "' + b"a" * 10_000_000 + b'"}', {}),
        (gzip.compress(b'{"skip": true, "x": "' + b"a" * 10_000_000 + b'"}'), {"Content-Encoding": "gzip"}),
        (gzip.compress(b'{"skip": true}'), {"Content-Encoding": "gzip"}),
    ],
    ids=["endless", "bomb", "compressed"],
)
async def test_answer_of_a_hook_is_cut_at_its_bound(
    aiohttp_server: Any, body: bytes, headers: dict[str, str]
) -> None:
    async def take(request: web.Request) -> web.Response:
        return web.Response(body=body, headers=headers)

    app = web.Application()
    app.router.add_post("/hook", take)
    server = await aiohttp_server(app)
    outcome, answer = await hook(f"http://127.0.0.1:{server.port}/hook").send(build_message(), seconds=5)
    assert (outcome, wants_skip(answer)) == (Sent(), False)
    assert len(answer) <= MOST_ANSWER_BYTES
