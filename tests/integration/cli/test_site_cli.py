"""Sites at the terminal, on a real database: shown, changed by flags or in the editor, and their secrets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import jwt
import pytest
from pydantic import SecretStr

from shared.adapters.encryption import Encryption
from shared.adapters.postgres.people.visitors import PostgresVisitors
from shared.config.settings import load_settings
from shared.config.sites import build_secret_context
from shared.core.ops.backups import key_id_of
from shared.diagnostics.row_checks import check_sites
from tests.integration.cli.terminal_driver import Pool, TerminalDriver, terminal, writes
from tests.kit.web.fixtures import Starter, starter

__all__ = ["terminal", "starter"]
ROOT = Path(__file__).resolve().parents[3]


async def test_a_site_is_changed_by_flags_and_shown_as_json(terminal: TerminalDriver, pool: Pool) -> None:
    code, said = await terminal.site(
        "edit", "default", "--title", "Acme", "--accent", "#fc0", "--starter", "One", "--starter", "Two",
        "--webview", "on", "--uploads", "off", "--privacy-url", "https://acme.example/privacy",
    )  # fmt: skip
    assert (code, "two seconds" in said) == (0, True)
    _, shown = await terminal.site("show", "default")
    assert json.loads(shown) == {
        "agent": "default", "audience": "personal", "origins": [], "title": "Acme", "accent": "#fc0",
        "starters": ["One", "Two"], "webview": True, "uploads": False,
        "privacy_url": "https://acme.example/privacy",
    }  # fmt: skip
    await terminal.site("edit", "default", "--title", "", "--starter", "")
    _, shown = await terminal.site("show", "default")
    assert not {"title", "starters"} & json.loads(shown).keys()
    assert json.loads(shown)["uploads"] is False
    await terminal.site("edit", "default", "--uploads", "auto", "--handover", "off", "--webview", "auto")
    _, shown = await terminal.site("show", "default")
    assert not {"uploads", "webview"} & json.loads(shown).keys()
    assert json.loads(shown)["handover"] is False
    await terminal.site("edit", "default", "--handover", "auto")
    _, shown = await terminal.site("show", "default")
    assert "handover" not in json.loads(shown)
    actions = await pool.fetch("SELECT action FROM audit ORDER BY id")
    assert [row["action"] for row in actions] == ["site.changed"] * 4


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--accent", "red"], "accent: must be a colour"),
        (["--privacy-url", "http://x"], "https://"),
        (["--verified", "yes"], "verified: must be"),
        (["--starter", "x" * 81], "starters[0]: may have 80"),
        (["--agent", "nobody"], "There is no agent"),
        (["--origin", "https://a/b"], "is no origin"),
    ],
)
async def test_what_cannot_be_used_changes_nothing(
    terminal: TerminalDriver, pool: Pool, flags: list[str], told: str
) -> None:
    code, said = await terminal.site("edit", "default", *flags)
    assert code == 1
    assert told in said
    assert await pool.fetchval("SELECT version FROM sites") == 1


async def test_a_site_is_changed_in_the_editor(terminal: TerminalDriver, pool: Pool) -> None:
    terminal.answers = ["y"]
    whole = {"agent": "default", "audience": "public", "origins": ["https://a.example"], "title": "Acme"}
    code, said = await terminal.site(
        "edit", "default", edit=writes({**whole, "titel": "x"}, {**whole, "verified": "required"})
    )
    assert code == 0, said
    assert "titel: there is no such key" in said
    assert "Nobody can sign in yet" in said
    row = await pool.fetchrow("SELECT audience, allowed_origins, config, version FROM sites")
    assert row is not None
    assert tuple(row) == ("public", ["https://a.example"], {"title": "Acme", "verified": "required"}, 2)
    assert list((terminal.folder / "drafts").iterdir()) == []


async def test_concurrent_site_change_is_never_overwritten(terminal: TerminalDriver, pool: Pool) -> None:
    assert (await terminal.site("edit", "default", edit=writes("{")))[0] == 1
    await pool.execute("UPDATE sites SET version = 2")
    draft = terminal.folder / "drafts" / "site-default-1.json"
    assert draft.read_text() == "{"
    code, said = await terminal.site("edit", "default", edit=writes("{"))
    assert code == 1
    assert str(draft) in said


@pytest.mark.control("S37")
async def test_two_secrets_are_shown_once_and_sealed(terminal: TerminalDriver, pool: Pool) -> None:
    shown = [(await terminal.site("secret", "default", "add"))[1].splitlines()[0] for _ in range(2)]
    code, said = await terminal.site("secret", "default", "add")
    assert (code, "two secrets already" in said) == (1, True)
    (site,) = (await PostgresVisitors(pool).load_sites()).values()
    encryption = Encryption(b"k" * 40)
    opened = [
        encryption.open(sealed, about=build_secret_context("default", key))
        for key, sealed in site.secrets.items()
    ]
    assert sorted(one.decode() for one in opened) == sorted(shown)
    rows = "".join([row["row"] for row in await pool.fetch("SELECT s::text AS row FROM site_secrets s")])
    assert not any(one in rows or one.encode().hex() in rows for one in shown)
    _, listed = await terminal.site("secret", "default", "list")
    assert not any(one in listed for one in shown)
    ids = [line.split()[0] for line in listed.splitlines()]
    assert (await terminal.site("secret", "default", "revoke", ids[0]))[0] == 0
    assert (await terminal.site("secret", "default", "revoke", ids[0]))[0] == 1
    assert (await terminal.site("secret", "default", "add"))[0] == 0
    audit = "".join(row["row"] for row in await pool.fetch("SELECT a::text AS row FROM audit a"))
    assert not any(one in audit for one in shown)


async def test_secret_command_says_what_is_missing_to_sign_people_in(terminal: TerminalDriver) -> None:
    _, said = await terminal.site("secret", "default", "add")
    assert "Nobody is signed in yet: ./evertalk site edit default --verified optional" in said
    assert "No page may use it yet: ./evertalk site edit default --origin https://YOUR-PAGE" in said
    await terminal.site("edit", "default", "--verified", "optional", "--origin", "https://shop.example")
    _, said = await terminal.site("secret", "default", "add")
    assert ("Nobody is signed in yet" in said, "No page may use it yet" in said) == (False, False)


@pytest.mark.control("S37")
async def test_secret_is_refused_under_another_key_than_the_installation_has(
    terminal: TerminalDriver, pool: Pool
) -> None:
    """The web process could not open it, and would sign nobody in."""
    sealed = Encryption(b"another key, which the processes have").seal(b"x", about="setting")
    await pool.execute(
        """INSERT INTO stored_settings (name, key_id, sealed, version, changed_by)
           VALUES ('EVERTALK_METRICS_TOKEN', $1, $2, 1, 'ada')""",
        sealed.key_id,
        sealed.data,
    )
    code, said = await terminal.site("secret", "default", "add")
    assert code == 1
    assert "EVERTALK_SECRET_KEY here is not the key of this installation" in said
    assert f"{sealed.key_id}" in said
    assert "Nothing was added." in said
    assert await pool.fetchval("SELECT count(*) FROM site_secrets") == 0


@pytest.mark.control("S37")
async def test_secret_is_refused_under_another_key_than_running_processes_have(
    terminal: TerminalDriver, pool: Pool
) -> None:
    report = {"same": {"key": key_id_of(b"z" * 40)}}
    await pool.execute("INSERT INTO workers (role, pid, health) VALUES ('web', 7, $1)", report)
    code, said = await terminal.site("secret", "default", "add")
    assert (code, "The processes that run have another EVERTALK_SECRET_KEY" in said) == (1, True)
    report = {"same": {"key": key_id_of(b"k" * 40)}}
    await pool.execute("UPDATE workers SET health = $1", report)
    assert (await terminal.site("secret", "default", "add"))[0] == 0


async def test_doctor_finds_a_secret_that_its_key_does_not_open(terminal: TerminalDriver, pool: Pool) -> None:
    await terminal.site("edit", "default", "--verified", "optional")
    await terminal.site("secret", "default", "add")
    url = terminal.database_url
    (finding,) = await check_sites(load_settings(secret_key="k" * 40), url)
    assert finding.level == "ok"
    (finding,) = await check_sites(load_settings(secret_key="z" * 40), url)
    assert finding.level == "warn"
    assert "is encrypted with another EVERTALK_SECRET_KEY" in finding.what


def test_secret_command_names_the_key_that_a_database_of_your_own_needs(terminal: TerminalDriver) -> None:
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT), "EVERTALK_DATA_DIR": str(terminal.folder),
        "DATABASE_URL": terminal.database_url, "REDIS_URL": "redis://127.0.0.1:1/0",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-P", "-m", "shared", "site", "secret", "default", "add"],
        env=environment, capture_output=True, text=True, timeout=60, cwd="/",
    )  # fmt: skip
    assert done.returncode != 0
    assert "EVERTALK_SECRET_KEY" in done.stderr
    assert "is needed with DATABASE_URL, the same for every process" in done.stderr
    assert "Traceback" not in done.stderr


async def test_person_signs_in_with_a_new_secret(terminal: TerminalDriver, starter: Starter) -> None:
    """The whole way: secret at the terminal, token of a page's server, hello to the web process."""
    await terminal.site("edit", "default", "--verified", "required", "--audience", "public")
    _, said = await terminal.site("secret", "default", "add")
    secret = said.splitlines()[0]
    moment = int(time.time())
    claims = {"sub": "customer-4711", "aud": "default", "iat": moment, "exp": moment + 300, "name": "Ada"}
    server = await starter.start(secret_key=SecretStr("k" * 40))
    screen, welcome = await server.greet(identity=jwt.encode(claims, secret, algorithm="HS256"))
    assert welcome["identified"] != ""
    await screen.say("My parcel?", cid="c1")
    await screen.until("run", state="done")
    assert (
        await server.services.pool.fetchval("SELECT count(*) FROM contacts WHERE display_name = 'Ada'") == 1
    )


async def test_the_snippet_is_one_line(terminal: TerminalDriver) -> None:
    assert await terminal.site("snippet", "default") == (
        0, '<script src="https://bot.example/widget.js" data-site="default" async></script>',
    )  # fmt: skip
    assert (await terminal.site("snippet", "nowhere"))[0] == 1


async def test_a_list_of_sites_fits_into_eighty_columns(terminal: TerminalDriver) -> None:
    await terminal.site("add", "n" * 40, "--origin", "https://" + "a" * 60 + ".example")
    _, said = await terminal.site("list")
    assert all(len(line) <= 80 for line in said.splitlines())
