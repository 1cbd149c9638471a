"""Creation of all Redis clients, so that all read the address alike: TLS authority, user and password."""

from __future__ import annotations

from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

from redis.asyncio import Redis

AnyRedis = TypeVar("AnyRedis", bound=Redis)


def open_redis(kind: type[AnyRedis], url: str, **options: Any) -> AnyRedis:
    """Return a client that connects at its first use; parameters of the URL override `options`."""
    client: AnyRedis = kind.from_url(url, **_build_tls_options(url), **options)
    return client


def _build_tls_options(url: str) -> dict[str, Any]:
    """Return options that check the certificate's host name; empty without TLS or checks."""
    parts = urlsplit(url)
    checked = parse_qs(parts.query).get("ssl_cert_reqs", ["required"])[0] == "required"
    return {"ssl_check_hostname": True} if parts.scheme == "rediss" and checked else {}
