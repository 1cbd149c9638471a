"""Results of MCP servers, as text and pictures for a model."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Any

from shared.ports import ToolFailed, ToolImage, ToolOutput

MOST_CHARS = 1_000_000
"""Maximum characters of a result's text; the rest is cut off."""
MOST_PARTS = 200
"""Maximum parts of a result; the text says how many more were left out."""


def convert_output(result: Any) -> ToolOutput:
    """Return a result's text and pictures for a model, cut at MOST_PARTS parts and MOST_CHARS characters.

    Text of embedded resources is included; links, sounds and other parts become a note in the text.
    Structured content is used if there is no text. Raises ToolFailed with the text if the result is marked
    as an error.
    """
    texts: list[str] = []
    images: list[ToolImage] = []
    parts: Sequence[Any] = result.content or ()
    for part in parts[:MOST_PARTS]:
        _take(part, texts, images)
    if len(parts) > MOST_PARTS:
        texts.append(f"[{len(parts) - MOST_PARTS} more parts were left out]")
    structured = getattr(result, "structured_content", None)
    if structured is not None and not any(text.strip() for text in texts):
        texts.append(json.dumps(structured, ensure_ascii=False, default=str))
    text = "\n".join(text for text in texts if text)[:MOST_CHARS]
    if result.is_error:
        raise ToolFailed(text.strip() or "The tool failed and did not say why.")
    return ToolOutput(text=text, images=tuple(images))


def _take(part: Any, texts: list[str], images: list[ToolImage]) -> None:
    match getattr(part, "type", ""):
        case "text":
            texts.append(str(part.text))
        case "image":
            _take_image(part, texts, images)
        case "audio":
            texts.append("[a sound was returned, which cannot be heard here]")
        case "resource_link":
            texts.append(f"[a link to {part.uri}: {part.title or part.name}]")
        case "resource":
            texts.append(_resource(part.resource))
        case other:
            texts.append(f"[something of the kind {str(other)[:40]} was returned, which cannot be shown]")


def _take_image(part: Any, texts: list[str], images: list[ToolImage]) -> None:
    try:
        body = base64.b64decode(part.data, validate=True)
    except (binascii.Error, ValueError):
        texts.append("[a picture was returned that cannot be opened]")
    else:
        images.append(ToolImage(body=body, mime=str(part.mime_type)))


def _resource(resource: Any) -> str:
    text = getattr(resource, "text", None)
    if isinstance(text, str):
        return f"{resource.uri}:\n{text}"
    return f"[{resource.uri} was returned as a file, which cannot be read here]"
