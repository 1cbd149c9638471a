"""Texts of the dashboard: language of a browser, translation files, and translated pages."""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
import re
from collections.abc import Mapping
from html import escape
from typing import TypeAlias

from aiohttp import web

from shared.locales import ENGLISH, FOLDER, list_languages
from web.server.pages import ASK_AGAIN, File, choose_language, serve

Words: TypeAlias = Mapping[str, str | Mapping[str, str]]
"""Translations by English text; a plural text has one for each plural category."""
COOKIE = "evertalk-language"
"""Cookie with the language chosen on the page Account; read before the login, too."""
_MARKED = re.compile(r"\[\[t (.+?)\]\]")
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


def language_of(request: web.Request) -> str:
    """Return the language that the operator chose, else the first available one of the browser."""
    wanted = f"{request.cookies.get(COOKIE, '')},{request.headers.get('Accept-Language', '')}"
    return choose_language(wanted, dashboard_languages())


@functools.cache
def dashboard_languages() -> Mapping[str, Mapping[str, str]]:
    """Return the languages of the dashboard by tag, each with native name, translator and direction."""
    return {
        language: json.loads((FOLDER / language / "about.json").read_text("utf-8"))
        for language in list_languages()
        if language == ENGLISH or (FOLDER / language / "dashboard.json").exists()
    }


@functools.cache
def load_texts(language: str) -> Words:
    """Return the translations of a language by English text; plural texts have one for each category.

    Empty for English and for languages without a dashboard.
    """
    path = FOLDER / language / "dashboard.json"
    words: Mapping[str, str | Mapping[str, str]] = (
        json.loads(path.read_text("utf-8")) if path.exists() else {}
    )
    return words


def translate(language: str, text: str, **values: str) -> str:
    """Return the translation of a dashboard text as HTML, or the English text if there is none.

    `values` replace placeholders as HTML without escaping; a placeholder without a value becomes empty.
    """
    found = load_texts(language).get(text, text)
    safe = escape(found if isinstance(found, str) else text, quote=False)
    return _PLACEHOLDER.sub(lambda name: values.get(name[1], ""), safe)


def translate_page(language: str, page: str, *, static_root: str = "/static", **values: str) -> str:
    """Return a page with its marks `[[t text]]` translated, and with its files from `static_root`."""
    page = page.replace('"/static/', f'"{static_root}/')
    direction = dashboard_languages()[language]["direction"]
    page = page.replace('<html lang="en">', f'<html lang="{language}" dir="{direction}">')
    return _MARKED.sub(lambda found: translate(language, found[1], **values), page)


async def serve_texts(request: web.Request) -> web.StreamResponse:
    """Serve the texts of one language; English texts are part of the scripts."""
    language = request.match_info["language"]
    if language == ENGLISH or language not in dashboard_languages():
        raise web.HTTPNotFound
    return serve(request, _load_file(language), cache=ASK_AGAIN, foreign=False)


@functools.cache
def _load_file(language: str) -> File:
    body = (FOLDER / language / "dashboard.json").read_bytes()
    return File(
        body=body,
        squeezed=gzip.compress(body, 9, mtime=0),
        content_type="application/json",
        etag=hashlib.sha256(body).hexdigest()[:32],
    )
