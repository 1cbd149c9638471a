"""Origins, addresses, headers on every answer, and writes from foreign pages."""

from __future__ import annotations

import asyncio
import hashlib
import io
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from tests.kit.web.fixtures import Server, Starter
from web.server import http_server
from web.server.origins import Proxies, origin_matches, parse_origin

SHOP = "https://shop.example"


@pytest.mark.control("S04")
@pytest.mark.parametrize(
    ("origin", "pattern", "good"),
    [
        (SHOP, SHOP, True),
        ("https://shop.example:443", SHOP, True),
        ("https://SHOP.example", SHOP, True),
        ("http://shop.example", SHOP, False),
        ("https://shop.example:8443", SHOP, False),
        ("https://evilshop.example", SHOP, False),
        ("https://shop.example.evil", SHOP, False),
        ("https://a.shop.example", SHOP, False),
        ("https://a.shop.example", "https://*.shop.example", True),
        ("https://a.b.shop.example", "https://*.shop.example", True),
        (SHOP, "https://*.shop.example", False),
        ("https://evilshop.example", "https://*.shop.example", False),
        ("http://a.shop.example", "https://*.shop.example", False),
        ("https://a.shop.example", "*.shop.example", True),
        ("http://a.shop.example", "*.shop.example", False),
        ("https://anything", "*", False),
        ("https://anything", "https://*", False),
    ],
)
def test_an_origin_is_compared_exactly_or_by_subdomain(origin: str, pattern: str, good: bool) -> None:
    parsed = parse_origin(origin)
    assert parsed is not None
    assert origin_matches(parsed, pattern) is good


@pytest.mark.control("S04")
@pytest.mark.parametrize(
    "text",
    ["null", "", "https://", "https://a/b", "https://a?x", "https://u@a", "ftp://a", "https://a:x", "a"],
)
def test_what_is_no_origin_is_none(text: str) -> None:
    assert parse_origin(text) is None


def _request(remote: str, **headers: str) -> web.Request:
    class Peer:
        def get_extra_info(self, name: str, default: Any = None) -> Any:
            return (remote, 1) if name == "peername" else default

    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return make_mocked_request("GET", "/", headers={"Host": "chat.example", **named}, transport=Peer())


@pytest.mark.control("S02")
def test_only_trusted_proxies_are_believed() -> None:
    nobody, one = Proxies((), public_url=None), Proxies(("10.0.0.0/8",), public_url=None)
    forged = _request("10.0.0.1", X_Forwarded_For="6.6.6.6, 1.2.3.4, 10.0.0.9", X_Forwarded_Proto="https")
    assert nobody.client_address(forged) == "10.0.0.1"
    assert nobody.scheme(forged) == "http"
    assert one.client_address(forged) == "1.2.3.4"
    assert one.scheme(forged) == "https"
    assert one.client_address(_request("9.9.9.9", X_Forwarded_For="1.2.3.4")) == "9.9.9.9"
    assert (
        one.client_address(_request("::ffff:10.0.0.1", X_Forwarded_For="[2001:db8::1]:99")) == "2001:db8::1"
    )


@pytest.mark.control("S02")
def test_only_a_direct_caller_is_local() -> None:
    proxies = Proxies((), public_url=None)
    assert proxies.is_local(_request("127.0.0.1"))
    assert proxies.is_local(_request("::1"))
    assert not proxies.is_local(_request("127.0.0.1", X_Forwarded_For="1.2.3.4"))
    assert not proxies.is_local(_request("127.0.0.1", Via="1.1 relay"))
    assert not proxies.is_local(_request("192.168.1.4"))
    assert not Proxies((), public_url="https://chat.example").is_local(_request("127.0.0.1"))
    assert not Proxies(("127.0.0.1",), public_url=None).is_local(_request("127.0.0.1"))


@pytest.mark.control("S28")
def test_anonymous_network_is_an_ipv4_address_or_ipv6_56() -> None:
    proxies = Proxies(("10.0.0.0/8",), public_url=None)
    assert proxies.network(_request("198.51.100.7")) == "198.51.100.7/32"
    assert proxies.network(_request("::ffff:198.51.100.7")) == "198.51.100.7/32"
    assert proxies.network(_request("2001:db8:1:2ff::1")) == "2001:db8:1:200::/56"
    assert proxies.network(_request("2001:db8:1:2aa::9")) == "2001:db8:1:200::/56"
    assert proxies.network(_request("10.0.0.1", X_Forwarded_For="198.51.100.7")) == "198.51.100.7/32"
    for many in ("127.0.0.1", "::1", "10.0.0.1", "unknown"):
        assert proxies.network(_request(many)) is None


@pytest.mark.control("S28")
async def test_of_a_visitors_address_only_a_keyed_hash_is_stored(starter: Starter) -> None:
    server = await starter.start(
        profile="public", trusted_proxies="127.0.0.1", secret_key="a-key-of-this-test-for-networks-alone"
    )
    seen = []
    for address in ("198.51.100.7", "198.51.100.7", "198.51.100.8"):
        async with server.client.ws_connect(
            f"{server.url}/ws", headers={"X-Forwarded-For": address, "Origin": server.url}
        ) as socket:
            await socket.send_json({"t": "hello", "v": 1, "site": "default", "last_seq": 0})
            assert (await socket.receive_json(timeout=10))["t"] == "welcome"
        seen.append(
            await server.services.pool.fetchval("SELECT network FROM contacts ORDER BY id DESC LIMIT 1")
        )
    assert seen[0] == seen[1] != seen[2]
    plain = hashlib.sha256(b"198.51.100.7/32").hexdigest()
    assert not any(plain.startswith(one) for one in seen)


async def test_a_site_may_live_on_the_pages_it_names(server: Server) -> None:
    await server.services.pool.execute(
        """INSERT INTO sites (name, agent_id, allowed_origins)
           SELECT 'shop', id, '{https://shop.example,https://*.branch.example}' FROM agents LIMIT 1"""
    )
    server.process.visitors.forget_sites()
    for origin in (SHOP, "https://west.branch.example"):
        _, welcome = await server.greet(site="shop", origin=origin)
        assert welcome["token"]
    elsewhere = await server.connect(origin=SHOP)
    await elsewhere.send({"t": "hello", "v": 1, "site": "default", "last_seq": 0})
    assert await elsewhere.closed() == 4403


async def test_the_operators_own_list_holds_for_all_sites(starter: Starter) -> None:
    server = await starter.start(allowed_origins=(SHOP,))
    _, welcome = await server.greet(origin=SHOP)
    assert welcome["token"]


@pytest.mark.control("S17")
@pytest.mark.parametrize(
    "path",
    [
        "/chat", "/widget.js", "/static/widget/main.js", "/healthz", "/readyz", "/nothing",
        "/api/v1/commands",
        "/api/v1/nothing", "/static/../../pyproject.toml", "/static/%2e%2e/%2e%2e/pyproject.toml", "/ws",
        "/chat?site=../x", "/api/v1/compactions/x/messages", "/dashboard", "/",
    ],
)  # fmt: skip
async def test_every_answer_has_the_strict_headers(server: Server, path: str) -> None:
    for method in ("GET", "POST", "DELETE"):
        async with server.client.request(method, server.url + path, allow_redirects=False) as answer:
            text = await answer.text()
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
            assert "require-trusted-types-for 'script'" in answer.headers["Content-Security-Policy"]
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert answer.headers["Referrer-Policy"] == "no-referrer"
            assert "Traceback" not in text
            assert "[project]" not in text
            if answer.status >= 400 and path != "/readyz":
                body = await answer.json()
                assert {"code", "message", "request_id"} <= set(body)
                assert answer.status < 500


@pytest.mark.parametrize("path", ["/chat", "/widget.js", "/nowhere"])
async def test_hsts_is_sent_to_https_visitors_only(starter: Starter, path: str) -> None:
    server = await starter.start(public_url="https://chat.example")
    for host, told in (("chat.example", "max-age=31536000"), ("127.0.0.1", None)):
        async with server.client.get(server.url + path, headers={"Host": host}) as answer:
            assert answer.headers.get("Strict-Transport-Security") == told


@pytest.mark.control("S46")
async def test_a_failure_of_ours_shows_nothing_of_us(starter: Starter) -> None:
    server = await starter.start()

    async def broken(known: object) -> None:
        raise RuntimeError("the secret inside")

    object.__setattr__(server.process.visitors, "find_caller", broken)
    async with server.client.get(f"{server.url}/api/v1/commands") as answer:
        body = await answer.json()
    assert answer.status == 500
    assert body["code"] == "internal_error"
    assert body["request_id"] == answer.headers["X-Request-Id"]
    assert "secret" not in str(body)
    assert "Content-Security-Policy" in answer.headers


async def _raw(server: Server, data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
    try:
        writer.write(data)
        async with asyncio.timeout(20):
            return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


@pytest.mark.control("S32", "S46")
@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 20_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n",
    ],
)
async def test_what_is_no_request_gets_a_strict_400(server: Server, data: bytes) -> None:
    answer = await _raw(server, data)
    assert b" 400 " in answer.splitlines()[0]
    assert b"Content-Security-Policy: default-src 'none'" in answer
    assert b'"code": "bad_request"' in answer


@pytest.mark.control("S33")
async def test_half_a_header_is_not_waited_for_for_ever(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "HEADER_SECONDS", 0.05)
    assert await _raw(server, b"GET /healthz HTTP/1.1\r\nHost: a") == b""
    assert await _raw(server, b"") == b""


@pytest.mark.control("S32")
async def test_a_long_body_is_refused(server: Server) -> None:
    url = f"{server.url}/api/v1/commands/help"
    _, welcome = await server.greet()
    headers = {"Authorization": f"Bearer {welcome['token']}", "Content-Type": "application/json"}
    async with server.client.post(url, data=io.BytesIO(b"x" * 1_100_000), headers=headers) as answer:
        assert answer.status == 413
        assert (await answer.json())["code"] == "too_large"


@pytest.mark.control("S12")
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "none"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Cookie": "a=b"}, 403),
        ({"Authorization": "Bearer x", "Origin": "https://evil.example"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 401),
        ({"Origin": "OWN"}, 401),
        ({}, 401),
    ],
)
async def test_a_foreign_page_cannot_write(server: Server, headers: dict[str, str], status: int) -> None:
    sent = {name: server.url if value == "OWN" else value for name, value in headers.items()}
    async with server.client.post(f"{server.url}/api/v1/commands/help", json={}, headers=sent) as answer:
        assert answer.status == status
