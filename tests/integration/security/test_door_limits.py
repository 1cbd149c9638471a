"""Who may come to the door, under which name, how often, and with how much."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator

import pytest
from aiohttp import ClientSession, CookieJar, DummyCookieJar, TCPConnector, web
from aiohttp.test_utils import make_mocked_request

from tests.kit.web.fixtures import Server, Starter, hello
from tests.kit.web.table import ROWS
from web.server import http_server
from web.server.http_server import Listener
from web.server.origins import Proxies, network_key
from web.server.rate_limits import ClientLimits

FLOODER = "127.0.0.2"
"""Every address that begins with 127 is this machine on Linux, and each counts for itself."""


@pytest.fixture
async def counted_url(server: Server, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """The same process at a door that counts what the flooder opens."""
    monkeypatch.setattr(http_server, "MAX_OF_ONE_ADDRESS", 50)
    door = Listener(server.runner, is_counted=lambda address: address == FLOODER)
    port = await door.start("127.0.0.1", 0)
    yield f"http://127.0.0.1:{port}"
    await door.stop_listening()


async def _half_a_request(url: str, head: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    port = int(url.rpartition(":")[2])
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(FLOODER, 0))
    except OSError:
        pytest.skip("this system has one loopback address only")
    writer.write(head)
    return reader, writer


async def _is_cut(reader: asyncio.StreamReader) -> bool:
    try:
        async with asyncio.timeout(20):
            return await reader.read() == b""
    except ConnectionError:
        return True


@pytest.mark.control("S33")
@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"GET /healthz HTTP/1.1\r\nHost: a\r\nX-Slow: ",
        b"POST /dashboard/login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 900\r\n",
    ],
)
async def test_three_hundred_slow_clients_block_no_other_client(
    server: Server, counted_url: str, monkeypatch: pytest.MonkeyPatch, head: bytes
) -> None:
    monkeypatch.setattr(http_server, "HEADER_SECONDS", 1.0)
    callers = await asyncio.gather(*(_half_a_request(counted_url, head) for _ in range(300)))
    assert server.runner.server is not None
    async with server.client.get(f"{counted_url}/healthz") as answer:
        assert answer.status == 200
    assert len(server.runner.server.connections) <= 50 + 5
    assert all(await asyncio.gather(*(_is_cut(reader) for reader, _ in callers)))
    for _, writer in callers:
        writer.close()
    reader, writer = await _half_a_request(counted_url, b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
    assert b" 200 " in await reader.readline(), "who hung up has their place again"
    writer.close()


def test_this_machine_and_trusted_proxies_are_not_counted() -> None:
    proxies = Proxies(("10.0.0.0/8",), public_url=None)
    known = ("127.0.0.1", "::1", "", "10.1.2.3", "::ffff:10.1.2.3")
    assert not any(proxies.is_direct_and_unknown(address) for address in known)
    assert proxies.is_direct_and_unknown("192.0.2.1")
    assert proxies.is_direct_and_unknown("2001:db8::1")


@pytest.mark.control("S31", "S33")
def test_a_network_of_ipv6_is_one_caller() -> None:
    assert network_key("2001:db8:1:2::1") == network_key("2001:db8:1:ff:ffff::9") == "2001:db8:1::/56"
    assert network_key("2001:db8:1:100::1") != network_key("2001:db8:1:2::1")
    assert network_key("::ffff:192.0.2.7") == network_key("192.0.2.7") == "192.0.2.7"
    assert network_key("unknown") == "unknown"


@pytest.mark.control("S31")
async def test_one_address_cannot_become_visitors_without_end(starter: Starter) -> None:
    server = await starter.start(limits=ClientLimits(newcomers=5), public_url="https://chat.example")
    first, welcome = await server.greet()
    for number in range(4):
        await server.greet(
            cookie=f"__Host-evertalk_visitor={str(number) * 43}", origin="https://chat.example"
        )
    sixth = await server.connect()
    await sixth.send(hello())
    refused = await sixth.until("error")
    assert (refused["code"], 0 < refused["retry_after"] <= 60) == ("rate_limited", True)
    assert await sixth.closed() == 4429
    made_up = {"Cookie": f"__Host-evertalk_visitor={'x' * 43}", "Origin": "https://chat.example"}
    async with server.client.post(
        f"{server.url}/api/v1/stream", json=hello(), headers={**made_up, "Sec-Fetch-Site": "same-origin"}
    ) as answer:
        assert (answer.status, "Retry-After" in answer.headers) == (429, True)
    assert await server.services.pool.fetchval("SELECT count(*) FROM sessions") == 5
    await server.greet(token=welcome["token"])
    await first.say("who was here before goes on")
    await first.until("ack")


class QuietProxy:
    """Passes requests on as nginx does at first: under the inner name, without a word about for whom."""

    def __init__(self, inner: str, said: dict[str, str]) -> None:
        self._inner = inner
        self._said = said
        self.url = ""

    async def __aenter__(self) -> QuietProxy:
        self._client = ClientSession(cookie_jar=DummyCookieJar())
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._pass_on)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()
        await self._runner.cleanup()

    async def _pass_on(self, request: web.Request) -> web.Response:
        kept = {name: value for name, value in request.headers.items() if name not in ("Host", "Connection")}
        async with self._client.request(
            request.method, self._inner + request.path_qs, headers={**kept, **self._said},
            data=await request.read(), allow_redirects=False,
        ) as answer:  # fmt: skip
            return web.Response(status=answer.status, body=await answer.read())


@pytest.mark.control("S02", "S31")
@pytest.mark.parametrize("said", [{}, {"Via": "1.1 edge"}])
async def test_strangers_behind_a_proxy_on_this_machine_are_not_this_machine(
    starter: Starter, said: dict[str, str]
) -> None:
    server = await starter.start(public_url="https://chat.example")
    most = server.process.limiter.limits.newcomers
    browser = {"Origin": "https://chat.example", "Sec-Fetch-Site": "same-origin"}
    async with QuietProxy(server.url, said) as proxy, ClientSession(cookie_jar=DummyCookieJar()) as http:
        async with http.get(f"{proxy.url}/metrics") as answer:
            assert answer.status == 403
        statuses = []
        for _ in range(most + 1):
            async with http.post(f"{proxy.url}/api/v1/stream", json=hello(), headers=browser) as answer:
                statuses.append(answer.status)
    assert statuses == [200] * most + [429]


async def test_ones_own_machine_without_a_public_address_needs_no_token(starter: Starter) -> None:
    server = await starter.start()
    async with server.client.get(f"{server.url}/metrics") as answer:
        assert answer.status == 200
    async with (
        QuietProxy(server.url, {"Via": "1.1 edge"}) as proxy,
        ClientSession() as http,
        http.get(f"{proxy.url}/metrics") as answer,
    ):
        assert answer.status == 403


async def test_a_scraper_with_the_token_comes_through_any_proxy(starter: Starter) -> None:
    server = await starter.start(public_url="https://chat.example", metrics_token="m" * 40)
    async with QuietProxy(server.url, {}) as proxy, ClientSession() as http:
        for token, status in (("m" * 40, 200), ("n" * 40, 401)):
            bearer = {"Authorization": f"Bearer {token}"}
            async with http.get(f"{proxy.url}/metrics", headers=bearer) as answer:
                assert answer.status == status


@pytest.mark.control("S02", "S12")
@pytest.mark.parametrize(
    ("host", "good"),
    [
        ("127.0.0.1:8080", True),
        ("[::1]:8080", True),
        ("192.168.1.20:8080", True),
        ("localhost:8080", True),
        ("evertalk.localhost", True),
        ("nas:8080", True),
        ("nas.local:8080", True),
        ("NAS.LAN", True),
        ("chat.example", True),
        ("chat.example.", True),
        ("chat.example:8443", True),
        ("rebound.evil.example", False),
        ("rebound.evil.example:8080", False),
        ("127.0.0.1.evil.example", False),
        ("localhost.evil.example", False),
        ("xlocal.evil", False),
        ("chat.example.evil.example", False),
        ("[::1].evil.example", False),
        ("evil.example:x", False),
    ],
)
def test_a_page_under_a_name_of_others_is_none_of_ours(host: str, good: bool) -> None:
    request = make_mocked_request("GET", "/chat", headers={"Host": host})
    assert Proxies((), public_url="https://chat.example/talk").is_ours(request) is good


@pytest.mark.control("S04", "S12")
async def test_a_name_that_was_led_to_this_machine_opens_nothing(server: Server) -> None:
    """What a browser sends for a page whose name first led elsewhere and then to 127.0.0.1."""
    port = server.url.rpartition(":")[2]
    name = f"rebound.evil.example:{port}"
    sent = {"Host": name, "Origin": f"http://{name}", "Sec-Fetch-Site": "same-origin"}
    for path in ("/chat", "/metrics", "/api/v1/commands", "/dashboard/login", "/ws", "/nothing"):
        async with server.client.get(server.url + path, headers=sent) as answer:
            assert (answer.status, (await answer.json())["code"]) == (421, "unknown_host"), path
    async with server.client.post(f"{server.url}/api/v1/stream", json=hello(), headers=sent) as answer:
        assert answer.status == 421
    assert await server.services.pool.fetchval("SELECT count(*) FROM sessions") == 0
    async with server.client.get(f"{server.url}/readyz", headers=sent) as answer:
        assert answer.status == 200, "whoever watches over us may ask under any name"


async def test_behind_a_trusted_proxy_the_name_is_its_matter(starter: Starter) -> None:
    server = await starter.start(trusted_proxies=("127.0.0.1",))
    async with server.client.get(f"{server.url}/chat", headers={"Host": "chat.example"}) as answer:
        assert answer.status == 200


@pytest.mark.control("S35", "S32")
async def test_no_route_unpacks_a_body(server: Server) -> None:
    bomb = gzip.compress(b"[" * 20_000_000, 9)
    async with ClientSession(
        cookie_jar=CookieJar(unsafe=True), connector=TCPConnector(limit=4), auto_decompress=False
    ) as client:
        for one in ROWS:
            if one.method == "GET":
                continue
            path = one.path.replace("{id}", "x").replace("{name}", "help")
            for packing in ("gzip", "deflate", "br", "zstd", "gzip, identity"):
                headers = {"Content-Encoding": packing, "Content-Type": "application/json"}
                async with client.request(
                    one.method, server.url + path, data=bomb, headers=headers
                ) as answer:
                    assert (answer.status, (await answer.json())["code"]) == (415, "bad_encoding"), one.name
