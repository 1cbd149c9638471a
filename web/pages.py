"""Pages and files: the chat page, the widget's loader, static modules, and whether this process is well."""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

STATIC = Path(__file__).resolve().parent / "static"
_CONTENT_TYPES = {
    ".js": "text/javascript",
    ".css": "text/css",
    ".html": "text/html",
    ".svg": "image/svg+xml",
    ".json": "application/json",
}
_SQUEEZED = frozenset(_CONTENT_TYPES)
FOR_EVER = "public, max-age=31536000, immutable"
ASK_AGAIN = "no-cache"
"""Kept by the browser, but only used after asking whether it is still the newest."""
_MODULES = ("static/w/main.js", "static/w/page.js")


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    body: bytes
    squeezed: bytes | None
    content_type: str
    etag: str


class Files:
    """Everything below `static`, read once: nothing else can be reached by any path.

    `/static-<digest>/…` holds the same files under a name that changes with any of them, so that browsers
    may keep them for ever; `../../` from a module leads to the server's root in both forms.
    """

    def __init__(self, folder: Path = STATIC) -> None:
        paths = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
        bodies = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
        self.digest = hashlib.sha256(
            b"".join(name.encode() + hashlib.sha256(body).digest() for name, body in bodies.items())
        ).hexdigest()[:16]
        self._files = {name: _file(name, body) for name, body in bodies.items()}
        self.chat = self._pointing_at_digest("chat.html")
        self.widget = self._pointing_at_digest("widget.js")

    def get(self, path: str) -> File | None:
        return self._files.get(path)

    def _pointing_at_digest(self, name: str) -> File | None:
        found = self._files.get(name)
        if found is None:
            return None
        text = found.body.decode()
        for module in _MODULES:
            text = text.replace(module, f"static-{self.digest}/{module.removeprefix('static/')}")
        return _file(name, text.encode())


def _file(name: str, body: bytes) -> File:
    suffix = Path(name).suffix
    squeezed = gzip.compress(body, 9, mtime=0) if suffix in _SQUEEZED and len(body) > 600 else None
    return File(
        body=body,
        squeezed=squeezed,
        content_type=_CONTENT_TYPES.get(suffix)
        or mimetypes.guess_type(name)[0]
        or "application/octet-stream",
        etag=hashlib.sha256(body).hexdigest()[:32],
    )


def serve(request: web.Request, file: File, *, cache: str, foreign: bool) -> web.Response:
    """`foreign` files may be loaded by pages of other origins: they hold nothing of anybody."""
    headers = {"Cache-Control": cache, "Vary": "Accept-Encoding"}
    if foreign:
        headers |= {"Access-Control-Allow-Origin": "*", "Cross-Origin-Resource-Policy": "cross-origin"}
    known = request.if_none_match
    if known is not None and any(tag.value in (file.etag, "*") for tag in known):
        response = web.Response(status=304, headers=headers)
    else:
        body = file.body
        if file.squeezed is not None and "gzip" in request.headers.get("Accept-Encoding", "").lower():
            body, headers["Content-Encoding"] = file.squeezed, "gzip"
        charset = "utf-8" if file.content_type.startswith(("text/", "application/json")) else None
        response = web.Response(body=body, headers=headers, content_type=file.content_type, charset=charset)
    response.etag = file.etag
    return response
