"""A strict receiver of alerts: it believes what is signed and fresh, and takes each message once."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

FRESH_SECONDS = 300


@dataclass(slots=True, kw_only=True)
class Receiver:
    secret: str
    url: str = ""
    answers: list[int] = field(default_factory=list)
    """Statuses of the next posts; then 204."""
    posts: list[tuple[str, bytes]] = field(default_factory=list)
    """Keys and bodies of all that was signed, repeated ones too."""
    faults: list[str] = field(default_factory=list)

    @property
    def taken(self) -> list[dict[str, Any]]:
        """The received messages, each once even if it was posted again."""
        return [json.loads(body) for body in dict(self.posts).values()]

    @property
    def messages(self) -> list[dict[str, Any]]:
        """All messages in the order of arrival, repeated ones too."""
        return [json.loads(body) for _, body in self.posts]

    async def take(self, request: web.Request) -> web.Response:
        body = await request.read()
        if fault := self._fault(request, body):
            self.faults.append(fault)
            return web.Response(status=401, text=fault)
        self.posts.append((request.headers["Idempotency-Key"], body))
        status = self.answers.pop(0) if self.answers else 204
        headers = {"Location": "http://127.0.0.1:1/elsewhere"} if status in (301, 302, 307) else {}
        return web.Response(status=status, headers=headers)

    def _fault(self, request: web.Request, body: bytes) -> str:
        at = request.headers.get("X-Evertalk-Timestamp", "")
        given = request.headers.get("X-Evertalk-Signature", "")
        if not at.isdigit() or abs(time.time() - int(at)) > FRESH_SECONDS:
            return "not fresh"
        wanted = hmac.new(self.secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
        if not hmac.compare_digest(given, f"v1={wanted}"):
            return "not signed"
        key = request.headers.get("Idempotency-Key", "")
        if json.loads(body)["id"] != key:
            return "another key"
        if any(earlier != body for known, earlier in self.posts if known == key):
            return "other words under the same key"
        return ""


@asynccontextmanager
async def receiving(secret: str) -> AsyncIterator[Receiver]:
    receiver = Receiver(secret=secret)
    app = web.Application()
    app.router.add_post("/alerts", receiver.take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}/alerts"
    try:
        yield receiver
    finally:
        await runner.cleanup()
