"""The stand-in for a push service takes what the RFCs allow, and says of everything else what is wrong."""

from __future__ import annotations

import time
from typing import Any

import aiohttp
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.kit.fakes.push.browser import CURVE, padded
from tests.kit.fakes.push.harness import RunningPush

SERVER = ec.generate_private_key(CURVE)
POINT = SERVER.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
KEY = padded(POINT)
HEADERS = {"Content-Encoding": "aes128gcm", "TTL": "60", "Urgency": "high", "Topic": "a-topic"}
RANDOM = bytes(16) + (4_096).to_bytes(4) + bytes([len(POINT)]) + POINT + bytes(range(200))
"""A salt, the size of a record, a sender's key, and words that nobody wrote."""


@pytest.fixture(autouse=True)
async def subscribed(push: RunningPush) -> None:
    await push.subscribe("anna", KEY)


def signed(push: RunningPush, *, by: Any = SERVER, key: str = KEY, **claims: Any) -> dict[str, str]:
    told = {"aud": push.origin, "exp": int(time.time()) + 3_600, "sub": "mailto:ops@example.com", **claims}
    token = jwt.encode({name: of for name, of in told.items() if of is not None}, by, algorithm="ES256")
    return {"Authorization": f"vapid t={token}, k={key}"}


async def fault(push: RunningPush, headers: dict[str, str], body: bytes = RANDOM) -> str:
    url = f"{push.url}/push/anna"
    async with aiohttp.ClientSession() as http, http.post(url, data=body, headers=headers) as answer:
        assert answer.status == 400
    (asked,) = await push.requests()
    return str(asked["fault"])


@pytest.mark.parametrize(
    ("changed", "wrong"),
    [
        ({"Content-Encoding": "aesgcm"}, "not in aes128gcm"),
        ({"TTL": ""}, "no TTL"),
        ({"TTL": "-1"}, "no TTL"),
        ({"Urgency": "at once"}, "no urgency"),
        ({"Topic": "t" * 33}, "no topic"),
        ({"Topic": "a topic"}, "no topic"),
        ({"Authorization": "WebPush abc"}, "not signed by the key"),
    ],
)
async def test_headers_are_those_of_the_rfc(push: RunningPush, changed: dict[str, str], wrong: str) -> None:
    assert wrong in await fault(push, {**HEADERS, **signed(push), **changed})


@pytest.mark.parametrize(
    ("claims", "wrong"),
    [
        ({"aud": "https://elsewhere.example"}, "InvalidAudienceError"),
        ({"aud": None}, "MissingRequiredClaimError"),
        ({"exp": int(time.time()) - 60}, "ExpiredSignatureError"),
        ({"exp": int(time.time()) + 90_000}, "signed for more than a day"),
        ({"sub": None}, "MissingRequiredClaimError"),
        ({"sub": "ops@example.com"}, "signed by nobody"),
        ({"key": padded(b"\x04" + bytes(64))}, "not signed by the key"),
        ({"by": ec.generate_private_key(CURVE)}, "InvalidSignatureError"),
    ],
)
async def test_a_signature_is_for_this_service_by_this_server_and_short(
    push: RunningPush, claims: dict[str, Any], wrong: str
) -> None:
    assert wrong in await fault(push, {**HEADERS, **signed(push, **claims)})


async def test_a_body_opens_with_the_keys_of_its_browser_alone(push: RunningPush) -> None:
    headers = {**HEADERS, **signed(push)}
    assert "NotForMe" in await fault(push, headers)
    assert "too long" in await fault(push, headers, bytes(4_097))


async def test_unknown_browser_is_gone(push: RunningPush) -> None:
    async with aiohttp.ClientSession() as http, http.post(f"{push.url}/push/bela", data=b"") as answer:
        assert answer.status == 404
