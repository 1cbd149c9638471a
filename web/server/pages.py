"""Serves static files: the chat page, the widget's loader, and modules with their translations."""

from __future__ import annotations

import functools
import gzip
import hashlib
import html
import json
import mimetypes
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from shared.locales import ENGLISH, match_language

STATIC = Path(__file__).resolve().parents[1] / "static"
"""Folder of the static files."""
LOCALES = STATIC.parents[1] / "shared" / "locales"
"""Folder of the translations, with a folder for each language."""
_CONTENT_TYPES = {
    ".js": "text/javascript",
    ".css": "text/css",
    ".html": "text/html",
    ".svg": "image/svg+xml",
    ".json": "application/json",
    ".webmanifest": "application/manifest+json",
}
_SQUEEZED = frozenset(_CONTENT_TYPES)
FOR_EVER = "public, max-age=31536000, immutable"
"""Cache-Control for files that never change under their address."""
ASK_AGAIN = "no-cache"
"""Cache-Control for files that browsers keep, but must revalidate before each use."""
PACKED = "dist/"
"""Folder of the bundles that `npm run build` makes of widget and dashboard, under the names of their
sources.
"""
_LANGUAGES = b"[[languages]]"
"""Placeholder in the widget's script for the list of languages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """Static file; `squeezed` is its gzip form, None if that is not worthwhile."""

    body: bytes
    squeezed: bytes | None
    content_type: str
    etag: str


class Files:
    """All files below `static`, read once at the start; no other file can be reached by a path.

    `/static/…` has the source files. `/static-<digest>/…` has the files that browsers use: bundles of widget
    and dashboard under an address that changes with any file, so that browsers may keep them for ever; other
    files unchanged. In both, `locales/<language>/` has the texts of the chat.
    """

    def __init__(self, folder: Path = STATIC, locales: Path = LOCALES) -> None:
        paths = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
        every = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
        words = {
            f"locales/{path.parent.name}/{path.name}": json.loads(path.read_bytes())
            for path in sorted(locales.glob("*/chat*.json"))
        }
        self.languages = sorted({name.split("/")[1] for name in words})
        known = " ".join(self.languages).encode()
        bodies = {name: body for name, body in every.items() if not name.startswith(PACKED)}
        bodies |= {
            name: json.dumps(one, ensure_ascii=False, separators=(",", ":")).encode()
            for name, one in words.items()
        }
        packed = bodies | {
            name.removeprefix(PACKED): body for name, body in every.items() if name.startswith(PACKED)
        }
        for some, name in ((bodies, "widget/i18n.js"), (packed, "widget/main.js")):
            if name in some:
                some[name] = some[name].replace(_LANGUAGES, known)
        self.digest = hashlib.sha256(
            b"".join(name.encode() + hashlib.sha256(body).digest() for name, body in packed.items())
        ).hexdigest()[:16]
        self._files = {name: _file(name, body) for name, body in bodies.items()}
        self._packed = {name: _file(name, body) for name, body in packed.items()}
        self.widget = self._read_with_digest("widget.js")
        parts = {one: words.get(f"locales/{one}/chat_parts.json", {}) for one in self.languages}
        spoken = {one: said.get("page", {}) for one, said in parts.items()}
        self._said = {one: spoken.get("en", {}) | said for one, said in spoken.items()}

    def get(self, path: str, *, packed: bool = False) -> File | None:
        """Return a file by its path; with `packed` its bundle, if there is one.

        None if there is no such file.
        """
        return (self._packed if packed else self._files).get(path)

    def page(self, name: str, accepted: str) -> File | None:
        """Return a page in the language of an `Accept-Language` header; None if there is no such page."""
        found, language = self._read_with_digest(name), choose_language(accepted, self.languages)
        if found is None:
            return None
        words = self._said.get(language, {}) | {"language": language}
        text = re.sub(r"\[\[(\w+)\]\]", lambda hole: html.escape(words[hole[1]]), found.body.decode())
        return _file(name, text.encode())

    def _read_with_digest(self, name: str) -> File | None:
        """Return a bundled file whose addresses contain the digest; None if there is no such file."""
        found = self._packed.get(name)
        if found is None:
            return None
        text = found.body.decode().replace('"static/widget/', f'"static-{self.digest}/widget/')
        return _file(name, text.encode())


def choose_language(accepted: str, languages: Collection[str]) -> str:
    """Return the available language that the header prefers most; English if none is available."""
    asked = sorted(map(_parse_quality, accepted[:1000].split(",")), key=lambda one: -one[0])
    for _, tag in asked:
        language = match_language(tag, languages)
        if language != ENGLISH or tag.lower().startswith(ENGLISH):
            return language
    return ENGLISH


def _parse_quality(accepted: str) -> tuple[float, str]:
    """Return weight and tag of an entry such as `de-AT;q=0.8`; weight 0 if it is malformed."""
    tag, _, quality = accepted.strip().partition(";q=")
    try:
        return (float(quality or 1), tag.strip())
    except ValueError:
        return (0.0, tag.strip())


@functools.lru_cache(maxsize=512)
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
    """Return the response with a file, or 304 if the client has it already.

    `cache` is the Cache-Control header. With `foreign`, pages of other origins may load the file.
    """
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


FILES = web.AppKey("files", Files)
"""Application key of the static files."""
