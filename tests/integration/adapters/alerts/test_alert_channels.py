"""Webhook and mail: signed, encrypted, never sent twice by guess, and every failure has its name."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from shared.adapters.alerts.mail import AlertMail
from shared.adapters.alerts.webhook import AlertWebhook
from shared.adapters.telemetry.health import Health
from shared.core.ops.alerts import AlertOutcomeUnknown, AlertRefused, NotSent, Outcome, Sent
from shared.core.verdicts.breaker import Breaker
from tests.integration.adapters.alerts.sendings import sending
from tests.kit.fakes.mail_server import MailServer, mail_server
from tests.kit.fakes.webhook_receiver import Receiver, receiving

SECRET = "s" * 32
URL = "http://127.0.0.1:8080/dashboard"


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving(SECRET) as running:
        yield running


def webhook(url: str, **more: Any) -> AlertWebhook:
    return AlertWebhook(url, SECRET, dashboard_url=URL, **more)


async def test_a_strict_receiver_takes_what_is_sent(receiver: Receiver) -> None:
    assert await webhook(receiver.url).send(sending()) == Sent()
    assert receiver.faults == []
    told = receiver.taken[0]
    assert (told["type"], told["text"]) == ("alert.opened", "1.0 GiB of 64.0 GiB are free")


async def test_a_repeated_message_has_the_same_key_and_the_same_bytes(receiver: Receiver) -> None:
    receiver.answers = [500]
    assert await webhook(receiver.url).send(sending()) == NotSent(code="http_500")
    assert await webhook(receiver.url).send(sending(attempt=2)) == Sent()
    assert (len(receiver.posts), len(receiver.taken), receiver.faults) == (2, 1, [])


async def test_another_secret_and_an_old_time_are_refused(receiver: Receiver) -> None:
    other = AlertWebhook(receiver.url, "t" * 32, dashboard_url=URL)
    assert await other.send(sending()) == AlertRefused(code="http_401")
    assert await webhook(receiver.url, clock=lambda: 1_000.0).send(sending()) == AlertRefused(code="http_401")
    assert receiver.faults == ["not signed", "not fresh"]


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (200, Sent()), (302, AlertRefused(code="http_302")), (404, AlertRefused(code="http_404")),
        (429, NotSent(code="http_429")), (503, NotSent(code="http_503")),
    ],
)  # fmt: skip
async def test_what_a_receiver_answers_decides(receiver: Receiver, status: int, outcome: Outcome) -> None:
    receiver.answers = [status]
    assert await webhook(receiver.url).send(sending()) == outcome


@pytest.mark.control("S26")
@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("https://hooks.example.org/x", "10.0.0.1"),
        ("https://hooks.example.org/x", "127.0.0.1"),
        ("https://hooks.example.org/x", "169.254.169.254"),
        ("https://hooks.example.org/x", "::ffff:192.168.1.1"),
        ("https://192.168.1.1/x", "192.168.1.1"),
        ("https://intern.local/x", "8.8.8.8"),
        ("http://hooks.example.org/x", "8.8.8.8"),
        ("http://localhost/x", "8.8.8.8"),
    ],
)
async def test_nothing_is_posted_into_the_network_around(url: str, address: str) -> None:
    async def resolve(host: str, port: int) -> list[Any]:
        return [ipaddress.ip_address(address)]

    assert await webhook(url, resolve=resolve).send(sending()) == AlertRefused(code="address_refused")


async def test_a_receiver_that_is_away_is_tried_again() -> None:
    async with receiving(SECRET) as gone:
        url = gone.url
    assert await webhook(url).send(sending()) == NotSent(code="no_connection")


def mail(server: MailServer, **more: Any) -> AlertMail:
    return AlertMail(
        server.url, sender="bot@example.org", receivers=("anna@example.org", "bert@example.org"),
        dashboard_url=URL, **more,
    )  # fmt: skip


async def test_a_mail_says_it_all_to_everybody() -> None:
    async with mail_server(login=("me", "pw")) as server:
        assert await mail(server).send(sending(target="email")) == Sent()
    letter = server.letters[0]
    assert (letter["Subject"], letter["From"]) == ("[Evertalk] The disk is nearly full", "bot@example.org")
    assert (letter["Message-ID"], letter["Auto-Submitted"]) == ("<key-1@example.org>", "auto-generated")
    assert "1.0 GiB of 64.0 GiB are free" in letter.get_content()
    assert server.receivers == [["anna@example.org", "bert@example.org"]]
    assert server.faults == []


async def test_a_wrong_password_is_not_tried_again() -> None:
    async with mail_server(login=("me", "right")) as server:
        server.login = ("me", "wrong")
        carrier = mail(server)
        server.login = ("me", "right")
        assert await carrier.send(sending()) == AlertRefused(code="login_refused")


@pytest.mark.parametrize(
    ("verb", "reply", "outcome", "letters"),
    [
        ("MAIL", "450 later", NotSent(code="smtp_450"), 0),
        ("RCPT", "550 nobody", AlertRefused(code="address_of_mail"), 0),
        ("DATA", "451 later", NotSent(code="smtp_451"), 0),
        ("DATA", "", NotSent(code="no_connection"), 0),
        (".", "554 spam", AlertRefused(code="mail_refused"), 0),
        (".", "452 full", NotSent(code="smtp_452"), 0),
        (".", "", AlertOutcomeUnknown(code="lost_connection"), 1),
    ],
)
async def test_only_what_surely_did_not_arrive_is_tried_again(
    verb: str, reply: str, outcome: Outcome, letters: int
) -> None:
    async with mail_server() as server:
        server.replies[verb] = [reply]
        assert await mail(server).send(sending()) == outcome
    assert len(server.letters) == letters


@pytest.mark.control("S37")
async def test_elsewhere_than_here_a_mail_needs_encryption(monkeypatch: pytest.MonkeyPatch) -> None:
    async with mail_server() as server:
        monkeypatch.setattr("shared.adapters.alerts.mail.is_this_machine", lambda host: False)
        assert await mail(server).send(sending()) == NotSent(code="tls")
    assert server.letters == []


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of 127.0.0.1, and its key, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "fake")])
    here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(7).not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
        .add_extension(here, critical=False).sign(key, hashes.SHA256())
    )  # fmt: skip
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    path.write_bytes(private + made.public_bytes(pem))
    return path


@pytest.mark.parametrize("at_once", [False, True], ids=["starttls", "tls"])
async def test_a_mail_travels_encrypted_and_only_to_who_can_prove_it(
    certificate: Path, at_once: bool
) -> None:
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(certificate)
    knowing = ssl.create_default_context(cafile=str(certificate))
    ways = (None, serving) if at_once else (serving, None)
    async with mail_server(starttls=ways[0], tls=ways[1]) as server:
        url = f"{'smtps' if at_once else 'smtp'}://127.0.0.1:{server.port}"
        given: dict[str, Any] = {"sender": "a@example.org", "receivers": ["b@example.org"]}
        known = AlertMail(url, **given, dashboard_url=URL, context=knowing)
        assert await known.send(sending()) == Sent()
        stranger = AlertMail(url, **given, dashboard_url=URL)
        assert await stranger.send(sending()) == NotSent(code="tls_authority")
    assert (len(server.letters), server.faults) == (1, [])


async def test_a_server_that_is_away_is_tried_again() -> None:
    async with mail_server() as server:
        carrier = mail(server)
    assert await asyncio.wait_for(carrier.send(sending()), 30) == NotSent(code="no_connection")


def test_health_names_hosts_and_never_addresses(tmp_path: Any) -> None:
    breaker = Breaker(clock=time.monotonic)
    breaker.record_refusal("credit balance is too low for key sk-1")
    states = {
        "https://user:key@api.example.org/v1?k=1": breaker.get_state(),
        "http://x": Breaker(clock=time.monotonic).get_state(),
    }
    told = Health(lambda: states, tmp_path / "not" / "yet")()
    (provider,) = told["providers"]
    assert provider["provider"] == "api.example.org"
    assert (provider["open"], provider["refused"], provider["calls"]) == (True, True, 0)
    assert provider["reason"] == "about billing"
    assert "credit" not in str(told)
    assert 0 < told["disk"]["free"] <= told["disk"]["total"]
