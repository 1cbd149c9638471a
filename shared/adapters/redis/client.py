"""Every client of Redis is made here, so that all read its address alike: authority, names and passwords."""

from __future__ import annotations

from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

from redis.asyncio import Redis

AnyRedis = TypeVar("AnyRedis", bound=Redis)


def open_redis(kind: type[AnyRedis], url: str, **options: Any) -> AnyRedis:
    """Return a client that connects at first use; the address overrides `options`."""
    client: AnyRedis = kind.from_url(url, **_build_tls_options(url), **options)
    return client


def _build_tls_options(url: str) -> dict[str, Any]:
    """A certificate that is checked must be that of the host; the library would take any that is signed."""
    parts = urlsplit(url)
    checked = parse_qs(parts.query).get("ssl_cert_reqs", ["required"])[0] == "required"
    return {"ssl_check_hostname": True} if parts.scheme == "rediss" and checked else {}
