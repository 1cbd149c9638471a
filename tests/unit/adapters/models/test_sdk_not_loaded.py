"""A process that has not called a model yet has not loaded the SDK either."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]
PROGRAM = """
import asyncio, sys
from shared.adapters.models import open_models

class Counter:
    def count(self, text):
        return len(text)

async def main():
    models = open_models(api_key="key", base_url="http://127.0.0.1:9", entries=(), counter=Counter())
    card = await models.load_card(models.chat)
    assert card.window == 1_000_000, card
    await models.close()

asyncio.run(main())
print([name for name in ("anthropic", "httpx2", "tiktoken") if name in sys.modules])
"""


def test_opening_models_and_reading_cards_loads_no_sdk() -> None:
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
