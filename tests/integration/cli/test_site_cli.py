"""Sites at the terminal, on a real database: shown, changed by flags or in the editor, and their secrets."""

from __future__ import annotations

import json

import pytest

from shared.adapters.encryption import Encryption
from shared.adapters.postgres.people.visitors import PostgresVisitors
from shared.config.sites import build_secret_context
from tests.integration.cli.test_agent_cli import Desk, Pool, desk, pool, writes

__all__ = ["desk", "pool"]


async def test_a_site_is_changed_by_flags_and_shown_as_json(desk: Desk, pool: Pool) -> None:
    code, said = await desk.site(
        "edit", "default", "--title", "Acme", "--accent", "#fc0", "--starter", "One", "--starter", "Two",
        "--webview", "on", "--uploads", "off", "--privacy-url", "https://acme.example/privacy",
    )  # fmt: skip
    assert (code, "ten seconds" in said) == (0, True)
    _, shown = await desk.site("show", "default")
    assert json.loads(shown) == {
        "agent": "default", "audience": "personal", "origins": [], "title": "Acme", "accent": "#fc0",
        "starters": ["One", "Two"], "webview": True, "uploads": False,
        "privacy_url": "https://acme.example/privacy",
    }  # fmt: skip
    await desk.site("edit", "default", "--title", "", "--starter", "")
    _, shown = await desk.site("show", "default")
    assert not {"title", "starters"} & json.loads(shown).keys()
    assert json.loads(shown)["uploads"] is False
    await desk.site("edit", "default", "--uploads", "auto", "--handover", "off", "--webview", "auto")
    _, shown = await desk.site("show", "default")
    assert not {"uploads", "webview"} & json.loads(shown).keys()
    assert json.loads(shown)["handover"] is False
    await desk.site("edit", "default", "--handover", "auto")
    _, shown = await desk.site("show", "default")
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
    desk: Desk, pool: Pool, flags: list[str], told: str
) -> None:
    code, said = await desk.site("edit", "default", *flags)
    assert code == 1
    assert told in said
    assert await pool.fetchval("SELECT version FROM sites") == 1


async def test_a_site_is_changed_in_the_editor(desk: Desk, pool: Pool) -> None:
    desk.answers = ["y"]
    whole = {"agent": "default", "audience": "public", "origins": ["https://a.example"], "title": "Acme"}
    code, said = await desk.site(
        "edit", "default", edit=writes({**whole, "titel": "x"}, {**whole, "verified": "required"})
    )
    assert code == 0, said
    assert "titel: there is no such key" in said
    assert "Nobody can sign in yet" in said
    row = await pool.fetchrow("SELECT audience, allowed_origins, config, version FROM sites")
    assert row is not None
    assert tuple(row) == ("public", ["https://a.example"], {"title": "Acme", "verified": "required"}, 2)
    assert list((desk.folder / "drafts").iterdir()) == []


async def test_a_change_of_somebody_else_is_never_overwritten(desk: Desk, pool: Pool) -> None:
    assert (await desk.site("edit", "default", edit=writes("{")))[0] == 1
    await pool.execute("UPDATE sites SET version = 2")
    draft = desk.folder / "drafts" / "site-default-1.json"
    assert draft.read_text() == "{"
    code, said = await desk.site("edit", "default", edit=writes("{"))
    assert code == 1
    assert str(draft) in said


@pytest.mark.control("S37")
async def test_two_secrets_are_shown_once_and_sealed(desk: Desk, pool: Pool) -> None:
    shown = [(await desk.site("secret", "default", "add"))[1].splitlines()[0] for _ in range(2)]
    code, said = await desk.site("secret", "default", "add")
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
    _, listed = await desk.site("secret", "default", "list")
    assert not any(one in listed for one in shown)
    ids = [line.split()[0] for line in listed.splitlines()]
    assert (await desk.site("secret", "default", "revoke", ids[0]))[0] == 0
    assert (await desk.site("secret", "default", "revoke", ids[0]))[0] == 1
    assert (await desk.site("secret", "default", "add"))[0] == 0
    audit = "".join(row["row"] for row in await pool.fetch("SELECT a::text AS row FROM audit a"))
    assert not any(one in audit for one in shown)


async def test_the_snippet_is_one_line(desk: Desk) -> None:
    assert await desk.site("snippet", "default") == (
        0, '<script src="https://bot.example/widget.js" data-site="default" async></script>',
    )  # fmt: skip
    assert (await desk.site("snippet", "nowhere"))[0] == 1


async def test_a_list_of_sites_fits_into_eighty_columns(desk: Desk) -> None:
    await desk.site("add", "n" * 40, "--origin", "https://" + "a" * 60 + ".example")
    _, said = await desk.site("list")
    assert all(len(line) <= 80 for line in said.splitlines())
