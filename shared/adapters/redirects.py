"""Redirects of model servers: no request is sent to a server that the operator has not configured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult, urljoin, urlsplit

from shared.core.values.errors import ModelRedirected

_PORTS = {"http": 80, "https": 443}
_MOST_CHARS = 260


def stay_at_origin(client: Any, base_url: str) -> Any:
    """Make an httpx2 client follow redirects only within the origin of `base_url`, and return the client.

    Requests elsewhere raise ModelRedirected from within the client, before they are sent.
    """

    async def refuse(request: Any) -> None:
        if not is_same_origin(base_url, str(request.url)):
            raise build_redirect_error(base_url, str(request.url))

    client.event_hooks = {**client.event_hooks, "request": [*client.event_hooks["request"], refuse]}
    return client


def refuse_redirect(url: str, status: int, headers: Mapping[str, str]) -> None:
    """Raise ModelRedirected if an answer of `url` is a redirect."""
    if 300 <= status < 400 and (location := headers.get("Location")):
        raise build_redirect_error(url, urljoin(url, location))


def is_same_origin(one: str, other: str) -> bool:
    """Return whether both URLs have the same scheme, host and port; https may replace http.

    False if one is invalid.
    """
    try:
        first, second = urlsplit(one), urlsplit(other)
        if first.hostname != second.hostname:
            return False
        is_upgrade = (first.scheme, second.scheme) == ("http", "https") and first.port == second.port is None
        return is_upgrade or (first.scheme, _port(first)) == (second.scheme, _port(second))
    except ValueError:
        return False


def build_redirect_error(url: str, target: str) -> ModelRedirected:
    """Return the error that `url` redirects to `target`, for operators."""
    return ModelRedirected(
        f"{_origin(url)} sends requests on to {_origin(target)}, where nothing was sent. "
        "If you trust that server, set its address in place of this one."
    )


def _port(url: SplitResult) -> int | None:
    return url.port or _PORTS.get(url.scheme)


def _origin(url: str) -> str:
    """Return scheme, host and port of a URL, without path, query and password."""
    try:
        found = urlsplit(url)
        port = f":{found.port}" if found.port else ""
        return f"{found.scheme}://{found.hostname}{port}"[:_MOST_CHARS]
    except ValueError:
        return "an address that cannot be read"
