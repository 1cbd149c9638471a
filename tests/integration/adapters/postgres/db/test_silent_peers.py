"""Connections over TCP are broken by the system when a host has vanished."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import pytest

from shared.adapters.postgres.db.connecting import UNANSWERED_SECONDS, open_connection
from shared.adapters.postgres.db.pool import open_pool
from tests.kit.fakes.tcp_proxy import TcpProxy


def _options(connection: Any) -> tuple[int, int, int]:
    sock = connection._transport.get_extra_info("socket")
    return (
        sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
        sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE),
        sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT),
    )


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="the system has no such option")
async def test_connections_over_tcp_do_not_wait_for_a_vanished_host(database_url: str) -> None:
    parts = urlsplit(database_url)
    sockets = Path(parse_qs(parts.query)["host"][0])
    wanted = (1, UNANSWERED_SECONDS, UNANSWERED_SECONDS * 1000)
    async with TcpProxy(upstream=sockets / ".s.PGSQL.5432") as line:
        for hosts in (f"127.0.0.1:{line.port}", f"127.0.0.1:{line.port},127.0.0.1:1"):
            url = f"postgresql://postgres@{hosts}{parts.path}?sslmode=disable"
            async with open_connection(url) as connection:
                assert _options(connection) == wanted
            pool = await open_pool(url, size=1)
            async with pool.acquire() as proxied:
                assert _options(cast("Any", proxied)._con) == wanted
            await pool.close()


async def test_connections_over_a_unix_socket_are_left_alone(database_url: str) -> None:
    async with open_connection(database_url) as connection:
        assert await connection.fetchval("SELECT 1") == 1
