"""Bytes of plain requests on the three wires: a changed byte loses each provider's cache."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic_core import to_json

from shared.adapters.models.chat_completions import build_completion_body
from shared.adapters.models.openai_provider import build_response_body
from shared.adapters.models.wire import build_request_body
from shared.core.values.messages import Image, Message, Text, ToolResult, ToolUse, text_message
from shared.ports import ModelCard, ModelRequest, PictureContent, SystemPart
from tests.kit.model_makers import SAVE, asking

GOLDEN = Path(__file__).parent / "golden" / "request_bytes.json"
CARD = ModelCard(
    name="m", window=100_000, max_output=4_096, window_known=True, prices=None,
    capabilities=frozenset({"tools", "json", "images", "cache"}), token_factor=1.0,
)  # fmt: skip
PLAIN = ModelCard(
    name="m", window=100_000, max_output=4_096, window_known=True, prices=None,
    capabilities=frozenset({"tools", "json"}), token_factor=1.0,
)  # fmt: skip
USE = ToolUse(id="call_1", name="save_memory", input={"kind": "fact", "text": "Zoë 🌊", "subject": "b/a"})
TALK = asking(
    "When does it open?",
    Message(role="assistant", blocks=(Text(text="One moment."), USE)),
    Message(
        role="user",
        blocks=(ToolResult(tool_use_id="call_1", text="Saved."), Text(text="And on \"Sunday\"?\n")),
    ),
    Message(role="assistant", blocks=(Text(text="At nine."),)),
    Message(
        role="user",
        blocks=(Image(attachment_id=1, mime="image/png", description="a door"), Text(text="And this?")),
    ),
    system=(SystemPart(text="You are kind.", cache=True), SystemPart(text="Today is Monday.")),
    tools=(SAVE,), cache_at=(2, 4), pictures={1: PictureContent(mime="image/png", body=b"\x89PNG")},
    max_output_tokens=512,
)  # fmt: skip
JSON = asking(text_message("user", "Sum up."), json_schema={"type": "object", "properties": {}})
REQUESTS: dict[str, tuple[ModelRequest, ModelCard]] = {
    "talk": (TALK, CARD), "talk without marks and pictures": (TALK, PLAIN), "JSON": (JSON, PLAIN),
}  # fmt: skip


def build_bodies() -> dict[str, str]:
    """Return the bytes of each request on each wire, as text."""
    bodies = {}
    for name, (request, card) in REQUESTS.items():
        for wire, body in (
            ("messages", build_request_body(request, card, "m")),
            ("openai", build_completion_body(request, card, "m")),
            ("responses", build_response_body(request, card, "m")),
        ):
            bodies[f"{wire}, {name}"] = to_json(body).decode()
    return bodies


@pytest.mark.parametrize("name", sorted(json.loads(GOLDEN.read_text(encoding="utf-8"))))
def test_request_bytes_stay_as_they_were(name: str) -> None:
    assert build_bodies()[name] == json.loads(GOLDEN.read_text(encoding="utf-8"))[name]


def test_request_bytes_are_kept_for_all_wires() -> None:
    assert set(json.loads(GOLDEN.read_text(encoding="utf-8"))) == set(build_bodies())
