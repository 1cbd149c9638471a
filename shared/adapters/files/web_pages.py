"""Fetching of pages of the public web for a model; addresses of this machine and its network are refused.

A name is resolved once, all its addresses must be public, and the connection goes to one of them, whatever
the name resolves to later. Each redirect is checked in the same way.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp
import structlog
from aiohttp.abc import AbstractResolver, ResolveResult

from shared.adapters.certificates import describe_failure
from shared.adapters.files.file_reading import decode_file, read_as
from shared.adapters.files.sandbox_client import open_in_sandbox
from shared.adapters.files.text_decoding import NotText
from shared.core.tools.fetched_pages import page_text
from shared.core.tools.web_address import (
    MOST_URL_CHARS,
    Address,
    BadWebAddress,
    WebAddress,
    is_public,
    resolve_redirect,
    web_address,
)
from shared.core.values.messages import ToolSpec
from shared.ports import ToolContext, ToolFailed, ToolImage, ToolOutput

log = structlog.get_logger(__name__)

MOST_BYTES = 1_048_576
"""Maximum bytes of a body after decompression."""
MOST_REDIRECTS = 3
"""Maximum redirects that are followed."""
FETCH_SECONDS = 20.0
"""Maximum seconds for a page with all its redirects."""
RESOLVE_SECONDS = 5.0
"""Maximum seconds for resolving a host name."""
MOST_ADDRESSES = 16
"""Maximum addresses of a host name that are used."""
AT_ONCE = 8
"""Maximum pages that one tool fetches at once."""
_PIECE = 65_536
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_HEADERS = {
    "User-Agent": "Evertalk/0.1 (reads a page for a person)",
    "Accept": "text/html, application/xhtml+xml, text/*;q=0.9, application/json;q=0.9, application/pdf;q=0.8",
    "Accept-Encoding": "gzip, deflate",
    "Accept-Language": "en, *;q=0.5",
}
_PAGES = frozenset({"text/html", "application/xhtml+xml"})
_TEXTS = frozenset({"application/json", "application/xml", "application/javascript", "application/yaml"})
_PICTURES = frozenset({"image/jpeg", "image/png", "image/webp", "image/gif"})

FETCH_URL = ToolSpec(
    name="fetch_url",
    description="Read a public web page, PDF, text or picture by its address; no searching, no logins.",
    input_schema={
        "type": "object",
        "properties": {"url": {"type": "string", "maxLength": MOST_URL_CHARS}},
        "required": ["url"],
        "additionalProperties": False,
    },
)
"""Specification of the tool, as models get it."""

Resolve = Callable[[str, int], Awaitable[Sequence[Address]]]
"""Function that returns all addresses of a host name for a port."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """Answer of a web server: final address, media type, charset ("" if none is named) and body."""

    address: WebAddress
    mime: str
    charset: str
    body: bytes
    truncated: bool = False


class FetchUrl:
    """Tool `fetch_url`, by which a model reads a page, text, PDF or picture of the public web.

    `permits` says which addresses are public; only tests that serve pages on loopback replace it.
    """

    spec: ToolSpec = FETCH_URL
    idempotent = True
    timeout_seconds = 60.0
    output_chars = 400_000

    def __init__(
        self, *, permits: Callable[[Address], bool] = is_public, resolve: Resolve | None = None
    ) -> None:
        self._permits = permits
        self._resolve = resolve or resolve_host
        self._places = asyncio.Semaphore(AT_ONCE)

    def subject(self, arguments: Mapping[str, Any]) -> str:
        """Return the host of the call's URL, for display; "" if the URL is invalid."""
        try:
            return web_address(str(arguments.get("url", ""))).host
        except BadWebAddress:
            return ""

    async def run(self, arguments: Mapping[str, Any], *, context: ToolContext) -> str | ToolOutput:
        """Fetch the page and return it as text for the model. Raises ToolFailed with a sentence for it."""
        address = _address(str(arguments["url"]))
        async with self._places:
            fetched = await self.fetch(address)
            log.info("page_fetched", host=fetched.address.host, mime=fetched.mime, bytes=len(fetched.body))
            return await _readable(fetched)

    async def fetch(self, address: WebAddress) -> Fetched:
        """Return the answer of an address, after at most MOST_REDIRECTS redirects.

        Raises ToolFailed, with a sentence for the model, if it cannot be fetched.
        """
        try:
            async with asyncio.timeout(FETCH_SECONDS):
                return await self._fetch_following(address)
        except BadWebAddress as error:
            raise ToolFailed(str(error)) from error
        except TimeoutError as error:
            raise ToolFailed(f"{address.host} did not answer within {FETCH_SECONDS:g} seconds.") from error
        except (aiohttp.ClientError, OSError, zlib.error) as error:
            # The text of the error may contain the whole address.
            log.info("page_fetch_failed", host=address.host, error=type(error).__name__)
            raise ToolFailed(f"{address.host} could not be read ({describe_failure(error)}).") from error

    async def _fetch_following(self, address: WebAddress) -> Fetched:
        for _ in range(MOST_REDIRECTS + 1):
            answer = await self._once(address)
            if isinstance(answer, Fetched):
                return answer
            address = answer
        raise ToolFailed(f"The page leads on more than {MOST_REDIRECTS} times.")

    async def _once(self, address: WebAddress) -> Fetched | WebAddress:
        pinned = await self._resolve_pinned(address)
        connector = aiohttp.TCPConnector(
            resolver=PinnedResolver(address.host, pinned), use_dns_cache=False, limit=1, force_close=True
        )
        async with (
            aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
                auto_decompress=False,
                headers=_HEADERS,
            ) as session,
            session.get(address.url, allow_redirects=False) as response,
        ):
            if response.status in _REDIRECTS and (location := response.headers.get("Location")):
                return resolve_redirect(address, location)
            if response.status >= 400:
                raise ToolFailed(f"{address.host} answered {response.status} {response.reason or ''}".strip())
            return await _read_response(address, response)

    async def _resolve_pinned(self, address: WebAddress) -> tuple[Address, ...]:
        literal = address.literal
        found = (literal,) if literal is not None else await self._look_up(address)
        if not all(self._permits(one) for one in found):
            log.warning("page_refused", host=address.host, reason="not a public address")
            raise BadWebAddress(f"{address.host} is not on the public web.")
        return tuple(found)

    async def _look_up(self, address: WebAddress) -> Sequence[Address]:
        try:
            async with asyncio.timeout(RESOLVE_SECONDS):
                found = await self._resolve(address.host, address.port)
        except (OSError, UnicodeError, TimeoutError) as error:
            raise BadWebAddress(f"There is no host called {address.host}.") from error
        if not found:
            raise BadWebAddress(f"There is no host called {address.host}.")
        return found[:MOST_ADDRESSES]


class PinnedResolver(AbstractResolver):
    """Resolver for one host name, which returns the addresses that were checked.

    Raises OSError for other names.
    """

    def __init__(self, host: str, addresses: Sequence[Address]) -> None:
        self._host = host
        self._addresses = addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the checked addresses for the pinned host. Raises OSError for another name."""
        if host != self._host:
            raise OSError("another name was asked for")
        return [
            ResolveResult(
                hostname=host,
                host=str(address),
                port=port,
                family=socket.AF_INET if address.version == 4 else socket.AF_INET6,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in self._addresses
        ]

    async def close(self) -> None:
        """Do nothing: there is no connection to close."""


async def resolve_host(host: str, port: int) -> Sequence[Address]:
    """Return all addresses of a host by the system's resolver, each once. Raises OSError if there is none."""
    loop = asyncio.get_running_loop()
    rows = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(ipaddress.ip_address(row[4][0]) for row in rows))


async def _read_response(address: WebAddress, response: aiohttp.ClientResponse) -> Fetched:
    mime = (response.content_type or "").lower()
    if mime not in _PAGES | _TEXTS | _PICTURES and not _is_text(mime) and mime != "application/pdf":
        raise ToolFailed(f"{address.host} sent {mime[:60] or 'a file'}, which cannot be read here.")
    unpack = _make_unpacker(response.headers.get("Content-Encoding", ""))
    body = bytearray()
    async for piece in response.content.iter_chunked(_PIECE):
        body += unpack(piece, MOST_BYTES + 1 - len(body))
        if len(body) > MOST_BYTES:
            break
    truncated = len(body) > MOST_BYTES
    if truncated and mime in _PICTURES | {"application/pdf"}:
        raise ToolFailed(f"The file has more than {MOST_BYTES // 1024:,} KiB, which is the most.")
    charset = _charset(response)
    return Fetched(
        address=address, mime=mime, charset=charset, body=bytes(body[:MOST_BYTES]), truncated=truncated
    )


def _make_unpacker(encoding: str) -> Callable[[bytes, int], bytes]:
    """Return a function that decompresses a piece of the body, to at most the given number of bytes.

    Raises ToolFailed for an unknown `encoding`.
    """
    kind = encoding.strip().lower()
    if kind in ("", "identity"):
        return lambda piece, most: piece[:most]
    if kind not in ("gzip", "x-gzip", "deflate"):
        raise ToolFailed("The page came packed in a way that was not asked for.")
    unpacker: Any = None

    def unpack(piece: bytes, most: int) -> bytes:
        nonlocal unpacker
        if unpacker is None:
            # Servers send deflate with and without the header that it should have.
            bare = kind == "deflate" and (piece[0] & 0x0F) != 8
            unpacker = zlib.decompressobj(-zlib.MAX_WBITS if bare else zlib.MAX_WBITS | 32)
        out: bytes = unpacker.decompress(unpacker.unconsumed_tail + piece, most)
        return out

    return unpack


def _charset(response: aiohttp.ClientResponse) -> str:
    """Return the charset that the server names; "" if it names none or an unknown one."""
    named = response.charset or ""
    try:
        "".encode(named or "utf-8")
    except (LookupError, UnicodeError):
        return ""
    return named


def _is_text(mime: str) -> bool:
    return mime.startswith("text/") or mime.endswith(("+json", "+xml"))


async def _readable(fetched: Fetched) -> str | ToolOutput:
    url = fetched.address.url
    if fetched.mime in _PICTURES:
        return ToolOutput(text=f"A picture from {url}", images=(ToolImage(body=fetched.body),))
    if fetched.mime == "application/pdf":
        return await _open_content("pdf", fetched, fetched.body)
    if fetched.mime in _PAGES:
        named = fetched.charset
        body = fetched.body.decode(named, "replace").encode("utf-8", "replace") if named else fetched.body
        return await _open_content("page", fetched, body)
    text = await _decode(fetched)
    return page_text(url, text, truncated=fetched.truncated)


async def _decode(fetched: Fetched) -> str:
    if fetched.charset:
        return fetched.body.decode(fetched.charset, "replace")
    try:
        decoded = await decode_file(fetched.body, opened=open_in_sandbox)
    except NotText:
        return fetched.body.decode("utf-8", "replace")
    return f"({read_as(decoded.guessed)})\n{decoded.text}" if decoded.guessed else decoded.text


async def _open_content(kind: Any, fetched: Fetched, content: bytes) -> str:
    head, body = await open_in_sandbox(kind, content)
    if head is None:
        raise ToolFailed(f"What {fetched.address.host} sent could not be opened.")
    text = body.decode("utf-8", "replace").strip()
    if not text:
        raise ToolFailed(
            f"The page of {fetched.address.host} holds no text that can be read without a browser."
        )
    cut = fetched.truncated or bool(head.get("truncated"))
    return page_text(fetched.address.url, text, title=str(head.get("title", "")), truncated=cut)


def _address(text: str) -> WebAddress:
    try:
        return web_address(text)
    except BadWebAddress as error:
        raise ToolFailed(str(error)) from error
