"""Text with styles and links, out of the parser's tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from markdown_it.token import Token

from bot.telegram.markup.blocks import TextSpan, TextSpans, TextStyles

MAX_URL_CHARS = 2048

# Telegram makes these clickable by itself wherever it finds them, but not within code.
_LIVE_SCHEMES = re.compile(r"\b(?:tg|ton|tonsite)://\S*", re.IGNORECASE)
_STYLES = {"strong_open": "bold", "em_open": "italic", "s_open": "strikethrough"}


def parse_spans(tokens: Sequence[Token]) -> TextSpans:
    """Merged, so that equal neighbours are one span."""
    merged: list[TextSpan] = []
    for span in _spans(tokens):
        last = merged[-1] if merged else None
        if last and not span.tex and not last.tex and (last.styles, last.url) == (span.styles, span.url):
            merged[-1] = TextSpan(text=last.text + span.text, styles=last.styles, url=last.url)
        elif span.text:
            merged.append(span)
    return tuple(piece for span in merged for piece in _defuse_links(span))


def _spans(tokens: Sequence[Token]) -> list[TextSpan]:
    """Flat, for emphasis nests as deep as somebody types stars."""
    found: list[TextSpan] = []
    stack: list[TextStyles] = [frozenset()]
    links: list[tuple[str, int]] = []
    for token in tokens:
        url = next((address for address, _ in links if is_linkable(address)), None)
        match token.type:
            case "strong_open" | "em_open" | "s_open":
                stack.append(stack[-1] | {_STYLES[token.type]})
            case "strong_close" | "em_close" | "s_close":
                stack.pop()
            case "link_open":
                links.append((str(token.attrGet("href") or ""), len(found)))
            case "link_close":
                address, start = links.pop()
                found += _unlinked(address, "".join(span.text for span in found[start:]), stack[-1])
            case "image":
                found += _image(token, stack[-1], url)
            case _:
                found.append(_span(token, stack[-1], url))
    return found


def _span(token: Token, styles: TextStyles, url: str | None) -> TextSpan:
    match token.type:
        case "softbreak" | "hardbreak":
            return TextSpan(text="\n", styles=styles, url=url)
        case "code_inline":
            # Telegram lets nothing stand around or inside code, so a link shows it as plain text.
            return TextSpan(text=token.content, styles=styles if url else frozenset(("code",)), url=url)
        case "math":
            return TextSpan(text=token.content, styles=styles | {"math"}, url=url, tex=token.info)
        case _:
            return TextSpan(text=token.content, styles=styles, url=url)


def _image(token: Token, styles: TextStyles, url: str | None) -> Iterator[TextSpan]:
    address = str(token.attrGet("src") or "")
    label = "🖼 " + (token.content or "image")
    if url is None and is_linkable(address):
        yield TextSpan(text=label, styles=styles, url=address)
    else:
        yield TextSpan(text=label, styles=styles, url=url)
        yield from _append_address(address, styles)


def _unlinked(address: str, label: str, styles: TextStyles) -> Iterator[TextSpan]:
    """What stands behind the label when the address is no link."""
    if not is_linkable(address) and label != _shown(address):
        yield from _append_address(address, styles)


def _append_address(address: str, styles: TextStyles) -> Iterator[TextSpan]:
    """An address that is no link: Telegram finds mail and telephone by itself, the rest must not live."""
    if shown := _shown(address):
        yield TextSpan(text=" (", styles=styles)
        yield TextSpan(text=shown, styles=styles if shown != address else frozenset(("code",)))
        yield TextSpan(text=")", styles=styles)


def _shown(address: str) -> str:
    """Mail and telephone without their scheme; pictures inside an address are nothing to read."""
    scheme, _, rest = address.partition(":")
    if scheme.lower() in ("mailto", "tel") and rest:
        return rest
    return "" if scheme.lower() == "data" or len(address) > MAX_URL_CHARS else address


def is_linkable(url: str) -> bool:
    """Whether Telegram takes it as a text link: it drops names without a dot, and misreads mailto and tel."""
    if len(url) > MAX_URL_CHARS or any(char.isspace() or not char.isprintable() for char in url):
        return False
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return False
    dotted = re.fullmatch(r"[^\s.]+(\.[^\s.]+)+\.?", host) is not None
    return parts.scheme.lower() in ("http", "https") and dotted and port != 0


def _defuse_links(span: TextSpan) -> Iterator[TextSpan]:
    if "code" in span.styles or not _LIVE_SCHEMES.search(span.text):
        yield span
        return
    at = 0
    for found in _LIVE_SCHEMES.finditer(span.text):
        if found.start() > at:
            yield TextSpan(text=span.text[at : found.start()], styles=span.styles, url=span.url)
        yield TextSpan(text=found.group(), styles=frozenset(("code",)))
        at = found.end()
    if at < len(span.text):
        yield TextSpan(text=span.text[at:], styles=span.styles, url=span.url)
