"""A deployment is reviewed: what is grave comes first, each finding with the change to make."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from shared.adapters.postgres.people.api_key_admin import ApiKeyAdmin
from shared.config.settings import Settings, load_settings
from shared.core.identity.api_keys import SCOPES
from shared.core.ops.backups import name_of
from shared.diagnostics.checks import Finding
from shared.diagnostics.security_database import NO_ROWS, read_deployment_rows, review_database
from shared.diagnostics.security_files import review_files
from shared.diagnostics.security_review import read_doctor_arguments, run_review
from shared.diagnostics.security_settings import classify_host, explain_weakness, review_settings

STRONG = "hK3v9Qe7Lr2xTn8Wb5Yc1Zd6Ug4Ms0Pa"
AWAY = "postgresql://u:p@db.example.org/x"
POOLED = {"database_url": "postgresql://u:p@127.0.0.1:6432/x"}


def found(settings: Settings, words: str, *, in_container: bool = False) -> str:
    """The grade of the finding that says so, or nothing."""
    risks = [risk for risk in review_settings(settings, in_container=in_container) if words in risk.what]
    assert all(risk.why.endswith(".") and risk.advice for risk in risks)
    return risks[0].level if risks else ""


def test_a_usual_installation_on_ones_own_machine_has_nothing_to_change() -> None:
    assert list(review_settings(load_settings(), in_container=False)) == []


@pytest.mark.control("S39")
@pytest.mark.parametrize(
    ("words", "settings", "grade"),
    [
        ("without encryption", {"http_host": "0.0.0.0"}, "grave"),
        ("without encryption", {"http_host": "0.0.0.0", "public_url": "https://chat.example.org"}, "serious"),
        ("begins with http://", {"public_url": "http://chat.example.org"}, "grave"),
        ("begins with http://", {"public_url": "http://127.0.0.1:8080"}, ""),
        ("begins with http://", {"anthropic_base_url": "http://models.example.org"}, "grave"),
        ("begins with http://", {"anthropic_base_url": "http://127.0.0.1:11434"}, ""),
        ("begins with http://", {"embeddings_url": "http://models.example.org"}, "grave"),
        ("begins with http://", {"rerank_url": "http://models.example.org"}, "grave"),
        ("begins with http://", {"rerank_url": "http://127.0.0.1:8012"}, ""),
        ("trusts a large part of the internet", {"trusted_proxies": "0.0.0.0/0"}, "grave"),
        ("trusts a large part of the internet", {"trusted_proxies": "::/0"}, "grave"),
        ("trusts a large part of the internet", {"trusted_proxies": "10.0.0.0/8"}, ""),
        ("no trusted proxy", {"public_url": "https://chat.example.org"}, "serious"),
        ("no trusted proxy", {"public_url": "https://chat.example.org", "trusted_proxies": "127.0.0.1"}, ""),
        ("allows https://*.org", {"allowed_origins": "https://*.org"}, "grave"),
        ("allows https://*", {"allowed_origins": "https://*"}, "grave"),
        ("allows http://shop.example", {"allowed_origins": "http://shop.example"}, "serious"),
        ("allows", {"allowed_origins": "https://*.shop.example https://shop.example"}, ""),
        ("EVERTALK_SECRET_KEY can be guessed", {"secret_key": "changeme" * 5}, "grave"),
        ("EVERTALK_SECRET_KEY can be guessed", {"secret_key": "a" * 40}, "grave"),
        ("EVERTALK_SECRET_KEY can be guessed", {"secret_key": STRONG}, ""),
        ("EVERTALK_METRICS_TOKEN can be guessed", {"metrics_token": "short"}, "grave"),
        ("require encryption", {"database_url": "postgresql://u:p@db.example.org/x"}, "grave"),
        ("require encryption", {"database_url": "postgresql://u:p@db/x"}, "slight"),
        ("require encryption", {"database_url": "postgresql://u:p@db.example.org/x?sslmode=require"}, ""),
        ("require encryption", {"database_url": "postgresql://u:p@db:1,db.example.org:2/x"}, "grave"),
        ("DIRECT_DATABASE_URL does not require", {**POOLED, "direct_database_url": AWAY}, "grave"),
        ("require encryption", {"database_url": "postgresql:///x?host=/run/postgresql"}, ""),
        ("password in DATABASE_URL is short", {"database_url": "postgresql://u:p@db.example.org/x"}, "grave"),
        ("DATABASE_URL has no password", {"database_url": "postgresql://u@db/x"}, "serious"),
        ("REDIS_URL has no password", {"redis_url": "redis://cache.example.org:6379/0"}, "grave"),
        ("REDIS_URL has no password", {"redis_url": "redis://valkey:6379/0"}, "serious"),
        ("REDIS_URL has no password", {"redis_url": "redis://127.0.0.1:6379/0"}, "slight"),
        ("REDIS_URL has no password", {"redis_url": f"redis://:{STRONG}@valkey:6379/0"}, ""),
        ("REDIS_URL does not encrypt", {"redis_url": f"redis://:{STRONG}@cache.example.org/0"}, "grave"),
        ("CRASH_POINT", {"crash_point": "after_answer"}, "grave"),
        ("finds the bot", {"telegram_access": "open"}, "serious"),
        ("finds the bot", {"telegram_access": "open", "profile": "public"}, ""),
        ("kept until they ask", {"profile": "public"}, "slight"),
        ("the log level is debug", {"log_level": "debug"}, "slight"),
    ],
)
def test_a_setting_that_opens_a_door_is_found(words: str, settings: dict[str, Any], grade: str) -> None:
    assert found(load_settings(**settings), words) == grade


def test_container_review_judges_the_published_port_not_the_address() -> None:
    (risk,) = review_settings(load_settings(http_host="0.0.0.0"), in_container=True)
    assert (risk.level, "127.0.0.1:8080:8080" in risk.advice) == ("slight", True)


def test_a_secret_that_a_machine_made_is_strong() -> None:
    assert explain_weakness(STRONG) == ""
    assert [bool(explain_weakness(one)) for one in ("", "x" * 40, "abc123" * 8, f"{STRONG}password")] == [
        True
    ] * 4


def test_hosts_are_here_around_or_away() -> None:
    here = ("", "localhost", "127.0.0.1", "::1", "[::1]", "/run/postgresql", "a.localhost")
    around = ("db", "10.1.2.3", "192.168.1.4", "fd00::1", "nas.local", "0.0.0.0")
    assert {classify_host(one) for one in here} == {"here"}
    assert {classify_host(one) for one in around} == {"around"}
    assert {classify_host(one) for one in ("db.example.org", "8.8.8.8", "2001:4860:4860::8888")} == {"away"}


@pytest.fixture
def private(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path


def about(risks: Iterator[Finding], words: str) -> Sequence[Finding]:
    return [risk for risk in risks if words in risk.what]


@pytest.mark.control("S37", "S44")
def test_files_that_others_can_read_or_change_are_found(private: Path) -> None:
    settings = load_settings(data_dir=private)
    assert not about(review_files(settings), "other accounts on this machine")
    (private / "secret_key").write_text(STRONG)
    (private / "secret_key").chmod(0o640)
    (private / "workspaces").mkdir()
    (private / "workspaces").chmod(0o777)
    private.chmod(0o755)
    grades = {risk.advice: risk.level for risk in about(review_files(settings), "other accounts")}
    assert grades == {
        # The servers that root starts as `nobody` must get through to their files.
        f"chmod {711 if os.geteuid() == 0 else 700} {private}": "serious",
        f"chmod 600 {private / 'secret_key'}": "grave",
        f"chmod -R go-w {private / 'workspaces'}": "grave",
    }


def test_a_backup_that_is_old_or_was_never_made_is_found(private: Path) -> None:
    settings = load_settings(data_dir=private)
    (risk,) = about(review_files(settings), "the newest backup")
    assert "is none" in risk.what
    (private / "backups").mkdir(mode=0o700)
    (private / "backups" / "erasures.jsonl").touch()
    (private / "backups" / "evertalk-20200101T000000Z.tar").touch()
    assert "days old" in about(review_files(settings), "the newest backup")[0].what
    (private / "backups" / name_of(datetime.now(UTC))).touch()
    assert not about(review_files(settings), "the newest backup")
    elsewhere = load_settings(data_dir=private, database_url="postgresql:///x", secret_key=STRONG)
    assert about(review_files(elsewhere), "cannot see whether")


@pytest.mark.control("S25", "S43")
def test_servers_of_tools_are_looked_at(private: Path) -> None:
    path = private / "mcp.json"
    servers = {
        "open": {"url": "http://tools.example.org/mcp"},
        "mine": {"url": "http://127.0.0.1:9000/mcp", "headers": {"Authorization": "Bearer abc"}},
        "newest": {"command": "/usr/bin/npx", "args": ["-y", "@scope/tools"]},
        "pinned": {"command": "uvx", "args": ["tools==1.2.3"]},
        "scoped": {"command": "npx", "args": ["-y", "@scope/tools@1.2.3"]},
        "script": {"command": "/opt/tools", "args": []},
    }
    path.write_text(json.dumps({"mcpServers": servers}))
    path.chmod(0o644)
    risks = {risk.what: risk.level for risk in review_files(load_settings(data_dir=private, mcp_file=path))}
    assert risks["the tools of open are called over http"] == "grave"
    assert risks["npx starts the newest version of the tools of newest"] == "serious"
    assert risks[f"other accounts can read {path}, which holds secrets of mine"] == "grave"
    assert not [what for what in risks if "pinned" in what or "scoped" in what or "script" in what]
    path.chmod(0o620)
    risks = {risk.what: risk.level for risk in review_files(load_settings(data_dir=private, mcp_file=path))}
    assert risks[f"other accounts on this machine can change {path} (620)"] == "grave"


@pytest.mark.control("S14", "S39")
async def test_what_rows_tell_is_found(
    database_url: str, pool: asyncpg.Pool[asyncpg.Record], private: Path
) -> None:
    quiet = load_settings(data_dir=private)
    assert list(review_database(quiet, await read_deployment_rows(database_url))) == []
    await pool.execute(
        """INSERT INTO operators (name, role, password_hash, last_login_at)
           SELECT 'admin' || n, 'admin', 'x', now() - make_interval(days => n * 40)
             FROM generate_series(1, 4) n"""
    )
    keys = ApiKeyAdmin(pool)
    await keys.create("all", tuple(SCOPES), by="test")
    await keys.create("all for a while", tuple(SCOPES), days=30, by="test")
    await keys.create("reader", ("sessions:read",), by="test")
    await keys.create("good", ("sessions:read",), days=30, by="test")
    await pool.execute("UPDATE sites SET allowed_origins = '{https://*.org}', config = '{\"webview\": true}'")
    await pool.execute(
        """INSERT INTO telegram_bots (bot_id, username, agent_id, access)
           SELECT 7, 'ours_bot', id, 'open' FROM agents LIMIT 1"""
    )
    await pool.execute(
        """INSERT INTO sites (name, agent_id, audience) SELECT 'shop', id, 'public' FROM agents LIMIT 1"""
    )
    (private / "mcp.json").write_text('{"mcpServers": {"files": {"command": "/opt/files"}}}')
    away = load_settings(
        data_dir=private, public_url="https://chat.example.org", database_url=database_url, secret_key=STRONG
    )
    risks = {
        risk.what: risk.level for risk in review_database(away, await read_deployment_rows(database_url))
    }
    wanted = {
        "4 admins: admin1, admin2, admin3, admin4": "slight",
        "admin3 (admin) has not logged in for 90 days": "serious",
        "the password of admin1 is older than a year": "slight",
        "the key all has all scopes everywhere and never expires": "grave",
        "the key all for a while has all scopes everywhere": "serious",
        "the key reader never expires": "serious",
        "the site default (./evertalk site edit default) allows https://*.org": "grave",
        "the site default is personal, but anyone can open it at https://chat.example.org": "serious",
        "the site default admits pages that do not name their origin (webview)": "slight",
        "anyone who finds @ours_bot can use it as your personal assistant": "serious",
        "strangers at site shop can use all tools of files": "serious",
        "strangers at site shop can make the assistant fetch pages (fetch_url)": "serious",
    }
    assert wanted.items() <= risks.items()
    assert not [what for what in risks if "good" in what]
    assert any("log in with only a password" in what for what in risks)
    await pool.execute(
        """INSERT INTO operator_factors (operator_id, key_id, sealed, confirmed_at)
           SELECT id, 'k', '\\x01', CASE WHEN name <> 'admin2' THEN now() END FROM operators"""
    )
    await pool.execute("""UPDATE agents SET config = '{"tools": {"allow": ["c*"], "deny": []}}'::jsonb""")
    risks = {
        risk.what: risk.level for risk in review_database(away, await read_deployment_rows(database_url))
    }
    assert not [what for what in risks if what.startswith("strangers at site shop")]
    (alone,) = [what for what in risks if "log in with only a password" in what]
    assert alone.startswith("admin2 log in"), "who has begun with a second factor has none yet"


@pytest.mark.parametrize(("followers", "waits", "found"), [(0, False, 0), (1, False, 1), (2, True, 0)])
def test_a_standby_that_no_commit_waits_for_is_found(
    private: Path, followers: int, waits: bool, found: int
) -> None:
    stored = replace(NO_ROWS, followers=followers, waits_for_followers=waits)
    risks = list(review_database(load_settings(data_dir=private), stored))
    assert [risk.what for risk in risks] == [
        "a standby follows the database, but no commit waits for it"
    ] * found


async def test_review_prints_text_or_json_and_exits_1_when_grave(database_url: str, private: Path) -> None:
    said: list[str] = []
    settings = load_settings(data_dir=private, database_url=database_url, secret_key=STRONG)
    done = await run_review(settings, as_json=False, say=said.append)
    assert done == 0, said
    assert "docs/controls.md" in said[-1]
    said.clear()
    open_door = load_settings(
        data_dir=private, database_url=database_url, secret_key=STRONG, trusted_proxies="0.0.0.0/0"
    )
    assert await run_review(open_door, as_json=True, say=said.append) == 1
    told = json.loads("\n".join(said))
    assert told["counts"]["grave"] == 1
    assert told["risks"][0] == {
        "grade": "grave",
        "what": "EVERTALK_TRUSTED_PROXIES=0.0.0.0/0 trusts a large part of the internet",
        "why": told["risks"][0]["why"],
        "change": "EVERTALK_TRUSTED_PROXIES= the addresses of your own proxies, such as 127.0.0.1",
    }


async def test_a_database_before_its_first_start_tells_nothing(
    empty_database_url: str, private: Path
) -> None:
    stored = await read_deployment_rows(empty_database_url)
    assert list(review_database(load_settings(data_dir=private), stored)) == []


async def test_unreachable_database_is_reported_and_the_rest_reviewed(private: Path) -> None:
    said: list[str] = []
    away = load_settings(
        data_dir=private, database_url="postgresql://u@127.0.0.1:1/x", secret_key=STRONG, log_level="debug"
    )
    assert await run_review(away, as_json=False, say=said.append) == 0
    told = "\n".join(said)
    assert "could not be checked: PostgreSQL at 127.0.0.1:1/x cannot be used" in told
    assert "EVERTALK_LOG_LEVEL=info" in told


@pytest.mark.control("S38")
async def test_redis_without_a_password_is_found(
    database_url: str, redis_url: str, private: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shared.diagnostics.security_review as review

    asked: list[str] = []

    async def lets_in(url: str) -> bool:
        asked.append(url)
        return True

    monkeypatch.setattr(review, "_accepts_without_password", lets_in)
    said: list[str] = []
    settings = load_settings(
        data_dir=private,
        database_url=database_url,
        secret_key=STRONG,
        redis_url=f"redis://:{STRONG}@valkey:6379/0",
    )
    assert await run_review(settings, as_json=False, say=said.append) == 1
    assert asked == ["redis://valkey:6379/0"]
    assert "accepts connections without the password" in said[0]
    monkeypatch.undo()
    assert await review._accepts_without_password(redis_url)
    assert not await review._accepts_without_password("redis://127.0.0.1:1/0")


def test_words_that_mean_nothing_end_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert read_doctor_arguments([]).security is False
    assert read_doctor_arguments(["--security", "--json"]).as_json is True
    for words in (["--json"], ["x"]):
        with pytest.raises(SystemExit) as ended:
            read_doctor_arguments(words)
        assert ended.value.code == 2
