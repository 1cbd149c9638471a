"""A certificate that is refused is named as such, by every client that shows errors to operators."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from pydantic import SecretStr

from shared.adapters.alerts.mail import AlertMail
from shared.adapters.alerts.post import Poster
from shared.adapters.certificates import CertificateFaultKind
from shared.adapters.models import ModelEntry
from shared.adapters.models.model_lists import ModelListUnavailable, list_models
from shared.adapters.models.openai_provider import OpenAIProvider
from shared.adapters.models.provider import Provider
from shared.adapters.models.remote import RemoteModel
from shared.adapters.postgres.db.connecting import connect
from shared.adapters.postgres.operations.dump import DumpFailed, dump
from shared.adapters.telegram_probe import TelegramUnreachable, probe_bot
from shared.config.settings import load_settings
from shared.core.ops.alerts import NotSent, advice_of
from shared.core.values.errors import ModelUnavailable, StorageUnavailable
from shared.diagnostics.doctor import REDIS
from shared.diagnostics.local_checks import check_model
from tests.integration.adapters.alerts.sendings import sending
from tests.integration.external_servers.certificates import Authority, Signed
from tests.kit.model_makers import WordCounter, asking, impatient

PROVIDERS: dict[Any, Any] = {"messages": Provider, "openai": OpenAIProvider}
FAULTS: dict[CertificateFaultKind, str] = {
    "expired": "its certificate has expired",
    "early": "its certificate is not valid yet",
    "host": "its certificate is for another host name",
    "authority": "its certificate is signed by an authority that is not trusted here",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultyServer:
    """A TLS server whose certificate has one fault, and what a client trusts that tries it."""

    kind: CertificateFaultKind
    port: int
    trusted: Path
    context: ssl.SSLContext

    @property
    def reason(self) -> str:
        return FAULTS[self.kind]


def make_certificate(folder: Path, kind: CertificateFaultKind) -> tuple[Signed, Authority]:
    """Return a certificate with the fault, and the authority that the client trusts."""
    authority = Authority(folder)
    if kind == "authority":
        return Authority(folder, "stranger").sign("server"), authority
    days = {"expired": (-9, -2), "early": (2, 9)}.get(kind, (-1, 1))
    hosts = ("db.example.org",) if kind == "host" else ("localhost", "127.0.0.1")
    return authority.sign("server", hosts=hosts, days=days), authority


@pytest.fixture(params=FAULTS)
async def faulty(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[FaultyServer]:
    signed, authority = make_certificate(tmp_path, request.param)
    serving = signed.for_servers()

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    # A handshake that the client refuses is an error of this server, too.
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=serving)
    trusting = ssl.create_default_context(cafile=str(authority.file))
    port = int(server.sockets[0].getsockname()[1])
    yield FaultyServer(kind=request.param, port=port, trusted=authority.file, context=trusting)
    server.close()


def database_url(server: FaultyServer) -> str:
    return (
        f"postgresql://ada:secret@localhost:{server.port}/talk?sslmode=verify-full&sslnegotiation=direct"
        f"&sslrootcert={server.trusted}"
    )


async def test_database_connection_names_the_fault(faulty: FaultyServer) -> None:
    with pytest.raises(StorageUnavailable) as refused:
        await connect(database_url(faulty))
    assert faulty.reason in str(refused.value)
    assert ("sslrootcert" in refused.value.advice) == (faulty.kind in ("host", "authority"))
    assert ("clock" in refused.value.advice) == (faulty.kind in ("expired", "early"))


async def test_backup_names_the_fault_of_each_host(faulty: FaultyServer, tmp_path: Path) -> None:
    url = database_url(faulty).replace(f"localhost:{faulty.port}", f"127.0.0.1:1,localhost:{faulty.port}")
    with pytest.raises(DumpFailed) as refused:
        await dump(url, tmp_path / "database.dump")
    assert "127.0.0.1:1: [Errno 111]" in str(refused.value)
    assert f"localhost:{faulty.port}: {faulty.reason}" in str(refused.value)


async def test_doctor_names_the_fault_of_redis(faulty: FaultyServer) -> None:
    url = f"rediss://localhost:{faulty.port}/0?ssl_ca_certs={faulty.trusted}"
    (finding,) = await REDIS.run(load_settings(), url)
    assert finding.level == "fail"
    assert finding.what.startswith(f"Redis: {faulty.reason}")
    assert finding.advice.endswith("(REDIS_URL)")


async def test_model_list_and_doctor_name_the_fault_of_a_provider(
    faulty: FaultyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "shared.adapters.models.model_lists.load_trusted_certificates", lambda: faulty.context
    )
    monkeypatch.setattr("shared.diagnostics.local_checks.load_trusted_certificates", lambda: faulty.context)
    address = f"https://localhost:{faulty.port}"
    with pytest.raises(ModelListUnavailable, match=faulty.reason):
        await list_models(address, "", seconds=10)
    findings = await check_model(load_settings(anthropic_base_url=address, anthropic_api_key="test-key"))
    assert f"localhost:{faulty.port} cannot be used: {faulty.reason}" in findings[-1].what


async def test_model_call_names_the_fault(faulty: FaultyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.adapters.models.provider.load_trusted_certificates", lambda: faulty.context)
    monkeypatch.setattr(
        "shared.adapters.models.openai_provider.load_trusted_certificates", lambda: faulty.context
    )
    for wire, provider_of in PROVIDERS.items():
        provider = provider_of(base_url=f"https://localhost:{faulty.port}", api_key="key")
        model = RemoteModel(ModelEntry(name="m", wire=wire), provider, WordCounter(), patience=impatient())
        with pytest.raises(ModelUnavailable, match=faulty.reason):
            await model.reply(asking("Hello"))
        await model.close()


async def test_mail_and_webhook_have_a_code_for_the_fault(
    faulty: FaultyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    mail = AlertMail(
        f"smtps://localhost:{faulty.port}", sender="a@example.org", receivers=["b@example.org"],
        dashboard_url="http://localhost/", context=faulty.context,
    )  # fmt: skip
    code = f"tls_{faulty.kind}"
    assert await mail.send(sending()) == NotSent(code=code)
    monkeypatch.setattr(aiohttp.connector, "_SSL_CONTEXT_VERIFIED", faulty.context)
    poster = Poster(lambda parts: lambda address: True)
    assert await poster.post(f"https://localhost:{faulty.port}/", b"{}", {}) == NotSent(code=code)
    assert "certificate" in advice_of(code)


async def test_telegram_probe_names_the_fault(faulty: FaultyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aiohttp.connector, "_SSL_CONTEXT_VERIFIED", faulty.context)
    with pytest.raises(TelegramUnreachable, match=faulty.reason):
        await probe_bot(SecretStr("1:token"), api_url=f"https://localhost:{faulty.port}", seconds=10)
