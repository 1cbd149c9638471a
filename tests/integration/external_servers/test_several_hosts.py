"""With several database hosts in one address, an error names the reason of each host."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from shared.adapters.postgres.db import relay
from shared.adapters.postgres.db.connecting import connect
from shared.adapters.postgres.operations.dump import DumpFailed, dump
from shared.cli.backup import BackupFailed, make_backup
from shared.config.settings import load_settings
from shared.core.values.errors import StorageUnavailable
from tests.kit.fakes.tcp_proxy import TcpProxy

NOBODY_THERE = "127.0.0.1:1: [Errno 111] Connect call failed ('127.0.0.1', 1)"


@pytest.fixture
async def port(database_url: str) -> AsyncIterator[int]:
    """TCP port of the test server, which itself listens on a socket only."""
    folder = parse_qs(urlsplit(database_url).query)["host"][0]
    async with TcpProxy(upstream=Path(folder) / ".s.PGSQL.5432") as proxy:
        yield proxy.port


def name_of(database_url: str) -> str:
    return urlsplit(database_url).path.removeprefix("/")


async def test_backup_names_the_reason_of_each_host(tmp_path: Path) -> None:
    settings = load_settings(data_dir=tmp_path, secret_key="k" * 48)
    url = "postgresql://ada@127.0.0.1:1,nowhere.invalid:5432/talk"
    with pytest.raises(BackupFailed) as refused:
        await make_backup(settings, url, folder=tmp_path / "backups")
    assert NOBODY_THERE in str(refused.value)
    assert "nowhere.invalid:5432: [Errno -" in str(refused.value)


async def test_refusal_of_a_later_host_comes_with_the_earlier_reasons(port: int) -> None:
    with pytest.raises(StorageUnavailable) as refused:
        await connect(f"postgresql://postgres@127.0.0.1:1,127.0.0.1:{port}/no_such")
    assert NOBODY_THERE in str(refused.value)
    assert f'127.0.0.1:{port}: database "no_such" does not exist' in str(refused.value)


async def test_refusal_of_the_first_host_asks_no_other(port: int) -> None:
    with pytest.raises(StorageUnavailable) as refused:
        await connect(f"postgresql://postgres@127.0.0.1:{port},127.0.0.1:1/no_such")
    assert f'127.0.0.1:{port}: database "no_such" does not exist' in str(refused.value)
    assert NOBODY_THERE not in str(refused.value)


async def test_standbys_alone_are_named_with_the_advice_to_promote_one(database_url: str, port: int) -> None:
    hosts = f"127.0.0.1:{port},127.0.0.1:1"
    with pytest.raises(StorageUnavailable) as refused:
        await connect(f"postgresql://postgres@{hosts}/{name_of(database_url)}?target_session_attrs=standby")
    assert f"127.0.0.1:{port}: " in str(refused.value)
    assert NOBODY_THERE in str(refused.value)
    assert "promote one" in refused.value.advice


async def test_dump_names_the_host_that_its_program_did_not_reach(
    database_url: str, port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program behind the private socket only sees that it was closed."""

    async def refuse(_: object) -> None:
        raise ConnectionError("the server does not speak TLS")

    monkeypatch.setattr(relay, "_open_route", refuse)
    with pytest.raises(DumpFailed, match=f"127.0.0.1:{port}: the server does not speak TLS"):
        await dump(f"postgresql://postgres@127.0.0.1:{port}/{name_of(database_url)}", tmp_path / "dump")
