"""One `Bot` makes all calls to Telegram: no other HTTP client stands beside it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

BOT_FOLDER = Path(__file__).resolve().parents[4] / "bot"
CLIENTS = ("ClientSession", "AsyncClient", "urlopen", "AiohttpSession", "TelegramSession")


def list_clients() -> Iterator[tuple[str, str]]:
    for path in sorted(BOT_FOLDER.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                if name in CLIENTS:
                    yield path.name, name


def test_http_client_is_made_in_the_session_only() -> None:
    assert list(list_clients()) == [("session.py", "ClientSession"), ("session.py", "TelegramSession")]
