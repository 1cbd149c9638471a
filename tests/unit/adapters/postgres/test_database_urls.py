"""An address means the same to the driver and to people, however it is written."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from shared.adapters.postgres.db.urls import build_driver_url, format_location, parse_hosts
from shared.config.settings import BadSettings, load_settings
from shared.core.values.errors import StorageUnavailable


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("postgresql://u:p@db.example.org/x", "db.example.org/x"),
        ("postgres://u:p@db.example.org:6000/x?sslmode=require", "db.example.org:6000/x"),
        ("postgresql+asyncpg://u@one:1,two:2/x?target_session_attrs=primary", "one:1,two:2/x"),
        ("postgresql:///x?host=one,two&port=7", "one:7,two:7/x"),
        ("postgresql:///x?host=one,two&port=7,8", "one:7,two:8/x"),
        ("postgresql://u@[::1]:5433,[2001:db8::2]/x", "::1:5433,2001:db8::2/x"),
        ("postgresql://postgres@/x?host=/run/postgresql", "/run/postgresql/x"),
        ("postgresql:///x", "localhost/x"),
    ],
)
def test_database_location_is_named(url: str, place: str) -> None:
    assert format_location(url) == place
    assert len(parse_hosts(url)) == place.count(",") + 1


def test_database_password_is_never_shown() -> None:
    assert "secret" not in format_location("postgresql://u:secret@one:1,two:2/x?password=secret")


def query_of(url: str) -> dict[str, list[str]]:
    return parse_qs(urlsplit(build_driver_url(url)).query)


def test_database_certificate_is_checked_by_some_authority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the file that is named, else by the account's own, else by what the system trusts."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("PGSSLROOTCERT", raising=False)
    named = "postgresql://u@db/x?sslmode=verify-full&sslrootcert=/etc/ca.pem"
    assert query_of(named)["sslrootcert"] == ["/etc/ca.pem"]
    bundle = query_of("postgresql://u@db/x?sslmode=verify-full")["sslrootcert"]
    assert Path(bundle[0]).is_file()
    assert query_of("postgresql://u@db/x?sslmode=require&sslrootcert=system")["sslrootcert"] == bundle
    assert "sslrootcert" not in query_of("postgresql://u@db/x?sslmode=require")
    (tmp_path / ".postgresql").mkdir()
    (tmp_path / ".postgresql" / "root.crt").touch()
    assert "sslrootcert" not in query_of("postgresql://u@db/x?sslmode=verify-ca")


def test_what_cannot_be_kept_is_refused() -> None:
    with pytest.raises(StorageUnavailable, match="channel_binding"):
        build_driver_url("postgresql://u@db/x?channel_binding=require")
    with pytest.raises(StorageUnavailable, match="postgresql://"):
        build_driver_url("mysql://u@db/x")


def test_settings_take_several_hosts_and_no_nonsense() -> None:
    many = "postgresql://u:p@one:5432,two:5433/x?target_session_attrs=primary"
    assert load_settings(database_url=many, secret_key="k" * 40).database_url
    for bad in ("postgresql://u@one:5432,two:port/x", "mysql://u@one/x", "postgresql://u@one:99999/x"):
        with pytest.raises(BadSettings, match="DATABASE_URL"):
            load_settings(database_url=bad, secret_key="k" * 40)
