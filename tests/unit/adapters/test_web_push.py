"""What leaves for a push service: only its browser can open it, and everybody can see whom it is from."""

from __future__ import annotations

import json
import os

import pytest

from shared.adapters.alerts.web_push import WebPush
from shared.adapters.encryption import Encryption, Sealed
from shared.core.identity.push import BadSubscription, PushTarget, PushUnavailable, origin_of, parse_target
from shared.core.ops.alerts import AlertRefused
from tests.kit.fakes.push.browser import Browser, NotForMe, padded, unpadded

RFC_8291 = (
    "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl"
    "7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
)
"""The message of its section 5."""
ENDPOINT = "https://push.example:8443/v1/abc"


class Keys:
    """One row, as the table has it."""

    def __init__(self) -> None:
        self.row: tuple[str, Sealed] | None = None
        self.kept = 0

    async def load_key(self) -> tuple[str, Sealed] | None:
        return self.row

    async def keep_key(self, public_key: str, sealed: Sealed) -> tuple[str, Sealed]:
        self.kept += 1
        self.row = self.row or (public_key, sealed)
        return self.row


def channel(keys: Keys, secret: bytes = b"s" * 32) -> WebPush:
    return WebPush(keys, encryption=lambda: Encryption(secret), subject="mailto:ada@example.org")


def target(browser: Browser, endpoint: str = ENDPOINT) -> PushTarget:
    given = browser.subscription(endpoint)
    return parse_target(**given, language="de", services=())


def test_the_kits_browser_opens_what_the_rfc_has_encrypted() -> None:
    kept = {"private": "q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94", "auth": "BTBZMqHH6r4Tts7J_aSIgg"}
    browser = Browser.of(kept)
    assert browser.opened(unpadded(RFC_8291)) == b"When I grow up, I want to be a watermelon"
    with pytest.raises(NotForMe):
        Browser().opened(unpadded(RFC_8291))


@pytest.mark.parametrize("length", [0, 1, 1_000, 3_900])
async def test_only_the_browser_opens_its_message(length: int) -> None:
    sending, browser, words = channel(Keys()), Browser(), os.urandom(length).replace(b"\x02", b"x")
    await sending._open()
    body = sending._encrypt(target(browser), words)
    assert browser.opened(body) == words
    assert len(body) <= 4_096
    assert sending._encrypt(target(browser), words) != body, "a new key and salt each time"
    with pytest.raises(NotForMe):
        Browser().opened(body)


async def test_all_processes_have_the_key_that_was_made_first() -> None:
    keys = Keys()
    one, other = channel(keys), channel(keys)
    assert await one.public_key() == await other.public_key() == await channel(keys).public_key()
    assert keys.kept == 1
    assert keys.row is not None
    assert len(unpadded(keys.row[0])) == 65
    assert b"PRIVATE" not in keys.row[1].data, "sealed"


async def test_with_another_key_of_the_installation_nothing_is_sent() -> None:
    keys = Keys()
    await channel(keys).public_key()
    other = channel(keys, secret=b"o" * 32)
    with pytest.raises(PushUnavailable):
        await other.send(target(Browser()), b"{}", topic="t", ttl_seconds=60, urgency="high")


async def test_a_point_that_is_on_no_curve_is_refused() -> None:
    bad = {**Browser().subscription(ENDPOINT), "p256dh": padded(b"\x04" + b"\x01" * 64)}
    sent = await channel(Keys()).send(
        parse_target(**bad, language="", services=()), b"{}", topic="t", ttl_seconds=60, urgency="high"
    )
    assert sent == AlertRefused(code="bad_keys")


def test_the_signature_is_for_the_origin_with_its_port() -> None:
    assert origin_of(ENDPOINT) == "https://push.example:8443"
    assert origin_of("https://push.example/a/b?c") == "https://push.example"


@pytest.mark.control("S26")
@pytest.mark.parametrize(
    "endpoint",
    [
        "http://push.example/abc", "https://127.0.0.1/abc", "https://10.0.0.7/abc", "https://[::1]/abc",
        "https://169.254.169.254/latest", "https://[::ffff:10.0.0.1]/a", "https://router.lan/a",
        "https://localhost/a", "https://me:pw@push.example/a", "https://push.example:22/a", "https://0x7f.1/",
        "file:///etc/passwd", "javascript:alert(1)", "https://[bad", "", "https://push.example/ a",
    ],
)  # fmt: skip
def test_an_address_that_may_not_be_posted_to_is_no_subscription(endpoint: str) -> None:
    with pytest.raises(BadSubscription):
        target(Browser(), endpoint)


def test_a_push_service_of_ones_own_may_be_anywhere() -> None:
    given = Browser().subscription("http://10.0.0.7:8000/a")
    assert (
        parse_target(**given, language="", services=("http://10.0.0.7:8000",)).endpoint == given["endpoint"]
    )
    for other in ("http://10.0.0.7:8001/a", "http://10.0.0.7/a", "http://x@10.0.0.7:8000/a"):
        with pytest.raises(BadSubscription):
            parse_target(**{**given, "endpoint": other}, language="", services=("http://10.0.0.7:8000",))


@pytest.mark.parametrize(
    "change",
    [{"p256dh": ""}, {"p256dh": padded(b"\x02" + b"a" * 64)}, {"auth": padded(b"a" * 15)}, {"auth": "ä!"},
     {"p256dh": json.dumps({})}],
)  # fmt: skip
def test_keys_of_another_form_are_no_subscription(change: dict[str, str]) -> None:
    with pytest.raises(BadSubscription):
        parse_target(**{**Browser().subscription(ENDPOINT), **change}, language="", services=())
