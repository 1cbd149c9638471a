"""Checks push messages against RFC 8030, 8291 and 8292, and answers with what is wrong."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec

from tests.kit.fakes.push.browser import CURVE, Browser, NotForMe, unpadded
from tests.kit.fakes.scripted_api import ScriptedApi

DAY_SECONDS = 24 * 3600
MOST_BYTES = 4_096
_TOPIC = re.compile(r"[A-Za-z0-9_-]{1,32}")
_URGENCIES = frozenset({"very-low", "low", "normal", "high"})
_SIGNED = re.compile(r"vapid t=([\w.-]+), k=([\w-]+)")


class PushApi(ScriptedApi):
    """The fake push service.

    A POST to `/control/browsers` creates a browser; messages to that browser are decrypted with its keys.
    """

    path = "/v1/push/{browser}"
    actions = frozenset({"status", "retry_after"})

    def __init__(self) -> None:
        super().__init__()
        self._browsers: dict[str, dict[str, Any]] = {}

    def application(self) -> web.Application:
        app = super().application()
        app.router.add_post("/control/browsers", self._subscribe)
        return app

    async def _subscribe(self, request: web.Request) -> web.Response:
        """Create a browser from its name, the server key that must sign its messages, and its own private
        keys.
        """
        wish = await request.json()
        self._browsers[wish["name"]] = wish
        return web.json_response({})

    async def answer(self, request: web.Request) -> web.StreamResponse:
        kept = self._browsers.get(request.match_info["browser"])
        if kept is None:
            return web.Response(status=404)
        try:
            message = _taken(request, await request.read(), kept)
        except (NotForMe, jwt.InvalidTokenError, ValueError) as error:
            self.asked.append({"fault": f"{type(error).__name__}: {error}"})
            return web.Response(status=400, text=str(error))
        action = self.next_action()
        status = action.get("status", 201)
        self.asked.append({**message, "browser": kept["name"], "status": status})
        headers = {"Retry-After": str(action["retry_after"])} if "retry_after" in action else {}
        return web.Response(status=status, headers=headers)


def _taken(request: web.Request, body: bytes, kept: dict[str, Any]) -> dict[str, Any]:
    """Return the decrypted message.

    Raises an error that names the reason if the headers, the signature or the encryption are wrong.
    """
    headers = request.headers
    if headers.get("Content-Encoding") != "aes128gcm" or len(body) > MOST_BYTES:
        raise ValueError("not in aes128gcm, or too long")
    if not headers.get("TTL", "").isdecimal():
        raise ValueError("no TTL")
    if headers.get("Urgency") not in _URGENCIES or not _TOPIC.fullmatch(headers.get("Topic", "")):
        raise ValueError("no urgency, or no topic")
    claims = _signed(headers.get("Authorization", ""), f"{request.scheme}://{request.host}", kept["key"])
    told = {"ttl": int(headers["TTL"]), "urgency": headers["Urgency"], "topic": headers["Topic"]}
    return {**told, "sub": claims["sub"], "message": json.loads(Browser.of(kept).opened(body))}


def _signed(header: str, origin: str, key: str) -> dict[str, Any]:
    found = _SIGNED.fullmatch(header)
    if found is None or found[2] != key:
        raise ValueError("not signed by the key that the browser subscribed with")
    public = ec.EllipticCurvePublicKey.from_encoded_point(CURVE, unpadded(key))
    wanted = ["aud", "exp", "sub"]
    claims: dict[str, Any] = jwt.decode(
        found[1], public, algorithms=["ES256"], audience=origin, options={"require": wanted}
    )
    if claims["exp"] > time.time() + DAY_SECONDS:
        raise ValueError("signed for more than a day")
    if not claims["sub"].startswith(("mailto:", "https://")):
        raise ValueError("signed by nobody whom one can ask")
    return claims
