"""A strict model server for a replay: it refuses what a real one would refuse."""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.kit.fakes.messages_api import RunningFake, running_fake

Wire = Literal["messages", "openai", "responses"]
MODEL = "claude-sonnet-5-5"
_ABILITIES: Mapping[Wire, list[str]] = {
    "messages": ["tools", "json", "images", "cache", "count_tokens"],
    "openai": ["tools", "json", "images"],
    "responses": ["tools", "json", "images"],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StrictServer:
    wire: Wire
    fake: RunningFake
    environment: Mapping[str, str]
    """Settings that make a system use this server."""

    async def facts(self) -> dict[str, object]:
        requests = await self.fake.requests()
        refused = [one for one in requests if one["outcome"] == "refused"]
        return {
            "wire": self.wire,
            "requests": len(requests),
            "invalid": len(refused),
            "refusals": [one["error"] for one in refused[:3]],
        }


@asynccontextmanager
async def strict_server(wire: Wire | None, *, window: int | None) -> AsyncIterator[StrictServer | None]:
    """Yield a running strict server.

    None if no wire format is given, so that the settings choose the server.
    """
    if wire is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="evertalk-replay-models-") as folder:
        async with running_fake(wire=wire, window=window) as fake:
            entry = {
                "name": MODEL,
                "wire": wire,
                "base_url": fake.base_url,
                "capabilities": _ABILITIES[wire],
                "prices": {"input": 2.0, "output": 10.0},
            }
            models = Path(folder) / "models.json"
            models.write_text(json.dumps([entry]), encoding="utf-8")
            environment = {
                "EVERTALK_MODELS_FILE": str(models),
                "EVERTALK_MODEL": MODEL,
                "EVERTALK_SUMMARY_MODEL": MODEL,
            }
            yield StrictServer(wire=wire, fake=fake, environment=environment)
