"""Reading of error bodies of model servers in any shape: object, list, text, HTML, JSON within text.

Shapes that were seen: `{"error": {...}}` (OpenAI, Anthropic), `[{"error": {...}}]` (Google), `{"error":
"text"}` (LM Studio, Ollama, TGI), `{"detail": …}` (servers built with pydantic), `{"errors": […]}`
(Cloudflare, watsonx), `{"message": {"detail": […]}}` (Mistral), `{"base_resp": {…}}` (MiniMax), `{"metadata":
{"raw": "…"}}` (OpenRouter).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from shared.core.values.messages import storable

MOST_CHARS = 20_000
"""Maximum characters of a body's texts that are read; longer bodies repeat the request."""
_MOST_DEPTH = 6
_MOST_TEXTS = 20
_MOST_ITEMS = 20
_TEXT_KEYS = (
    "message", "Message", "msg", "detail", "error", "errors", "Error", "Response", "error_msg", "error_message", "errorMessage",
    "status_msg", "base_resp", "metadata", "raw", "title", "reason", "description", "details",
)  # fmt: skip
"""Fields that hold a text or lead to one, the most specific first."""
_CODE_KEYS = (
    "code",
    "Code",
    "type",
    "status",
    "error_code",
    "error_type",
    "__type",
    "status_code",
    "param",
    "reason",
)
_NO_CODES = frozenset({"error", "none", "null", "about:blank"})
_PAGE = re.compile(r"\s*+<(?:!doctype|\?xml|html|head|body|title|h\d|center|p\b|div)", re.IGNORECASE)
_TAG = re.compile(r"<[^<>]*+>")
_HIDDEN = ("script", "style", "svg")
_BLANKS = re.compile(r"\s++")
_MOST_DIGITS = 9
_OF_ANSWERS = ("choices", "content", "usage", "output", "delta", "response", "id")
_OF_ERRORS = ("detail", "message", "error_msg", "msg")
_ERROR_TYPE = re.compile(r"error|exception|invalid|failed", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorBody:
    """Texts, codes and numbers found in an error body."""

    text: str = ""
    message: str = ""
    """Texts of a JSON body's error fields; "" if the body is no JSON."""
    codes: tuple[str, ...] = ()
    retry_delay: str = ""
    """Seconds to wait in Google's form, such as `3.2s`; "" if the body has none."""
    tokens: int | None = None
    maximum: int | None = None

    @property
    def kind(self) -> str:
        """First code that is not a number; "" if there is none."""
        return next((code for code in self.codes if not code.isdigit()), "")

    @property
    def status(self) -> int | None:
        """HTTP status that the body names, 400 to 599; None if it names none."""
        numbers = (int(code) for code in self.codes if code.isascii() and code.isdigit() and len(code) == 3)
        return next((number for number in numbers if 400 <= number < 600), None)


def read_error_body(body: object, *, otherwise: str = "") -> ErrorBody:
    """Return the texts, codes and limits of a model server's error body; raises nothing.

    `otherwise` is the text of the result if the body has none.
    """
    walk = _Walk()
    walk.visit(body, depth=0)
    is_json = isinstance(body, Mapping | list) or (isinstance(body, str) and _json_within(body) is not None)
    text = " ".join(walk.texts) or plain_text(otherwise)
    return ErrorBody(
        text=storable(text[:MOST_CHARS]),
        message=storable(" ".join(walk.texts)[:MOST_CHARS]) if is_json else "",
        codes=tuple(dict.fromkeys(storable(code) for code in walk.codes)),
        retry_delay=walk.retry_delay,
        tokens=walk.tokens,
        maximum=walk.maximum,
    )


def is_error_object(event: Mapping[str, Any]) -> bool:
    """Return whether an object that came instead of an answer is an error, whatever its HTTP status."""
    kind = event.get("type")
    if event.get("error") or event.get("errors") or event.get("object") == "error" or kind == "error":
        return True
    if isinstance(wrapped := event.get("Response"), Mapping) and wrapped.get("Error"):
        return True
    told = event.get("base_resp")
    if isinstance(told, Mapping):
        return told.get("status_code") not in (0, None)
    if any(name in event for name in _OF_ANSWERS):
        return False
    if isinstance(kind, str) and not _ERROR_TYPE.search(kind):
        return False
    return any(isinstance(event.get(name), str | list) and event[name] for name in _OF_ERRORS)


def plain_text(text: str) -> str:
    """Return a text without HTML tags, scripts and repeated blanks, cut to `MOST_CHARS` characters."""
    text = text[: 4 * MOST_CHARS]
    if _PAGE.match(text):
        for name in _HIDDEN:
            text = _without_element(text, name)
        text = _TAG.sub(" ", text)
    return _BLANKS.sub(" ", text).strip()[:MOST_CHARS]


def parse_tokens(value: object) -> int | None:
    """Return a number of tokens, with or without commas.

    Returns None if it is no number or has more than nine digits.
    """
    digits = str(value).replace(",", "")
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= _MOST_DIGITS else None


def _without_element(text: str, name: str) -> str:
    """Return HTML without each `<name …>…</name>`; an element without an end takes the rest of the text."""
    opening, closing = f"<{name}", f"</{name}"
    kept, lower, at = [], text.lower(), 0
    while (start := lower.find(opening, at)) >= 0:
        kept.append(text[at:start])
        end = lower.find(closing, start)
        at = len(text) if end < 0 else end
        if end >= 0:
            close = lower.find(">", end)
            at = len(text) if close < 0 else close + 1
    return " ".join([*kept, text[at:]])


class _Walk:
    """Collector of the texts, codes and limits in one body, limited in depth, texts and items."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.codes: list[str] = []
        self.retry_delay = ""
        self.tokens: int | None = None
        self.maximum: int | None = None

    def visit(self, value: object, *, depth: int) -> None:
        if depth > _MOST_DEPTH or len(self.texts) >= _MOST_TEXTS:
            return
        match value:
            case Mapping():
                self._visit_object(value, depth=depth)
            case list() | tuple():
                for item in value[:_MOST_ITEMS]:
                    self.visit(item, depth=depth + 1)
            case str() if value.strip():
                self._visit_text(value, depth=depth)
            case _:
                pass

    def _visit_object(self, value: Mapping[str, Any], *, depth: int) -> None:
        self.codes.extend(_codes(value))
        self.tokens = self.tokens or parse_tokens(value.get("n_prompt_tokens"))
        self.maximum = self.maximum or parse_tokens(value.get("n_ctx"))
        delay = value.get("retryDelay")
        self.retry_delay = self.retry_delay or (delay if isinstance(delay, str) else "")
        place = value.get("loc")
        if isinstance(place, list | tuple) and isinstance(value.get("msg"), str):
            # pydantic: the field's path is next to the sentence.
            self._add(f"{'.'.join(str(part) for part in place[:_MOST_ITEMS])}: {value['msg']}")
            return
        for name in _TEXT_KEYS:
            self.visit(value.get(name), depth=depth + 1)

    def _visit_text(self, text: str, *, depth: int) -> None:
        text = text[: 4 * MOST_CHARS]
        inner = _json_within(text)
        if inner is None:
            self._add(plain_text(text))
        else:
            self.visit(inner, depth=depth + 1)

    def _add(self, text: str) -> None:
        if text and not any(text in known for known in self.texts):
            self.texts.append(text)


def _codes(value: Mapping[str, Any]) -> Iterator[str]:
    for name in _CODE_KEYS:
        code = value.get(name)
        if isinstance(code, str | int) and not isinstance(code, bool):
            text = str(code).strip()
            if text and len(text) <= 100 and " " not in text and text.lower() not in _NO_CODES:
                yield text


def _json_within(text: str) -> object | None:
    """Return the JSON object or list that a text consists of; None if it is something else."""
    text = text.strip()
    if not text.startswith(("{", "[")):
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict | list) else None
