"""Stored settings at the terminal, on a real database: checked, sealed, audited, nobody overwritten."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from shared.adapters.encryption import CannotUnseal
from shared.bootstrap.stored_settings import build_stored_settings
from shared.cli.stored_settings import read_settings_arguments, run_settings
from shared.config.settings import load_settings
from shared.core.values.errors import StorageUnavailable
from shared.runtime import CRASH_POINTS
from tests.integration.cli.terminal_driver import Pool

KEY = "sk-made-for-this-test"


@dataclass
class Shell:
    database_url: str
    folder: Path
    told: list[str] = field(default_factory=list)

    async def run(self, *words: str, secret: str = "", key: str = "k" * 40) -> tuple[int, str]:
        said: list[str] = []
        self.told.clear()
        code = await run_settings(
            read_settings_arguments(words), database_url=self.database_url,
            settings=load_settings(data_dir=self.folder, secret_key=key), say=said.append,
            tell=self.told.append, ask=lambda: secret,
        )  # fmt: skip
        return code, "\n".join((*said, *self.told))


@pytest.fixture
def shell(database_url: str, tmp_path: Path) -> Shell:
    return Shell(database_url, tmp_path)


async def test_a_setting_is_stored_listed_and_taken_away(shell: Shell, pool: Pool) -> None:
    assert await shell.run("set", "evertalk_preset", "pantheon") == (
        0, "Stored. A running Evertalk follows within two seconds.",
    )  # fmt: skip
    assert "EVERTALK_PRESET=pantheon  [command line, " in (await shell.run("list"))[1]
    assert (await shell.run("unset", "EVERTALK_PRESET"))[0] == 0
    assert await shell.run("list") == (0, "")
    rows = await pool.fetch("SELECT actor, object, detail FROM audit WHERE action = 'settings.changed'")
    assert [tuple(row.values()) for row in rows] == [
        ("command line", "settings", {"names": ["EVERTALK_PRESET"], "version": version}) for version in (1, 2)
    ]


async def test_a_secret_is_sealed_and_in_no_list_export_or_audit(shell: Shell, pool: Pool) -> None:
    assert (await shell.run("set", "ANTHROPIC_API_KEY", KEY))[0] == 1
    assert (await shell.run("set", "ANTHROPIC_API_KEY", secret=KEY))[0] == 0
    await shell.run("set", "EVERTALK_CAP_TOTAL_PER_DAY_USD", "2.50")
    assert "ANTHROPIC_API_KEY=(hidden)" in (await shell.run("list"))[1]
    _, exported = await shell.run("export")
    assert json.loads(exported)["settings"] == {"EVERTALK_CAP_TOTAL_PER_DAY_USD": "2.50"}
    for table in ("stored_settings", "audit"):
        rows = await pool.fetch(f"SELECT t::text AS row FROM {table} t")
        assert rows
        assert not any(KEY in row["row"] or KEY.encode().hex() in row["row"] for row in rows)


async def test_secret_that_cannot_be_decrypted_is_replaced_or_removed(shell: Shell, pool: Pool) -> None:
    names = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "EVERTALK_TELEGRAM_TOKENS")
    tokens = json.dumps({"house": f"1:{'a' * 35}"})
    for name, secret in zip(names, (KEY, KEY, tokens), strict=True):
        assert (await shell.run("set", name, secret=secret))[0] == 0
    other = "l" * 40
    code, listed = await shell.run("list", key=other)
    assert (code, listed.count("(cannot be decrypted; set or unset it)"), KEY in listed) == (0, 3, False)
    assert json.loads((await shell.run("export", key=other))[1])["settings"] == {}
    code, told = await shell.run("set", "EVERTALK_MODEL", "mine", key=other)
    assert (code, [name in told for name in names]) == (0, [True, True, True])
    code, told = await shell.run("set", "ANTHROPIC_BASE_URL", "https://elsewhere.example", key=other)
    assert (code, "ANTHROPIC_API_KEY: give it again" in told) == (1, True)
    store = build_stored_settings(pool, load_settings(data_dir=shell.folder, secret_key=other))
    with pytest.raises(CannotUnseal, match=r"ANTHROPIC_API_KEY.*EVERTALK_TELEGRAM_TOKENS.*OPENAI_API_KEY"):
        await store.load()
    assert (await store.load(frozenset({"EVERTALK_MODEL"}))).values == {"EVERTALK_MODEL": "mine"}
    assert (await shell.run("set", "ANTHROPIC_API_KEY", secret=f"{KEY}-2", key=other))[0] == 0
    assert (await shell.run("set", "EVERTALK_TELEGRAM_TOKENS", secret=tokens, key=other))[0] == 0
    code, told = await shell.run("unset", "OPENAI_API_KEY", key=other)
    assert (code, told) == (0, "Stored. A running Evertalk follows within two seconds.")
    assert (await store.load()).values == {
        "ANTHROPIC_API_KEY": f"{KEY}-2", "EVERTALK_MODEL": "mine", "EVERTALK_TELEGRAM_TOKENS": tokens,
    }  # fmt: skip


async def test_secret_of_the_environment_is_removed_when_it_cannot_be_decrypted(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shell.run("set", "ANTHROPIC_API_KEY", secret=KEY)
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    assert (await shell.run("unset", "ANTHROPIC_API_KEY"))[0] == 1
    assert (await shell.run("set", "ANTHROPIC_API_KEY", secret=KEY, key="l" * 40))[0] == 1
    assert (await shell.run("unset", "ANTHROPIC_API_KEY", key="l" * 40))[0] == 0
    assert await shell.run("list", key="l" * 40) == (0, "")


async def test_what_was_exported_is_stored_by_import(shell: Shell, tmp_path: Path) -> None:
    await shell.run("set", "EVERTALK_QUIET_HOURS", "22-7")
    file = tmp_path / "settings.json"
    file.write_text((await shell.run("export"))[1])
    await shell.run("unset", "EVERTALK_QUIET_HOURS")
    assert (await shell.run("import", str(file)))[0] == 0
    assert "EVERTALK_QUIET_HOURS=22-7" in (await shell.run("list"))[1]
    for broken in ("{", '{"format": "else", "settings": {}}', '{"format": "evertalk-settings-1"}'):
        file.write_text(broken)
        assert "is not what `settings export` prints" in (await shell.run("import", str(file)))[1]
    file.write_text(json.dumps({"format": "evertalk-settings-1", "settings": {"ANTHROPIC_API_KEY": KEY}}))
    code, said = await shell.run("import", str(file))
    assert (code, KEY in said, "holds secrets" in said) == (1, False, True)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("EVERTALK_PRESET", "stedy", "did you mean steady?"),
        ("EVERTALK_SOFT_BUDGET", "2500", "4001 fits"),
        ("EVERTALK_CAP_TOTAL_PER_DAY_USD", "-1", "greater than or equal to 0"),
        ("EVERTALK_HTTP_PORT", "81", "cannot be stored"),
        ("EVERTALK_MODEL", "two\nlines", "one line"),
        ("EVERTALK_ALERT_EMAIL_TO", "nobody", "is not an address"),
    ],
)
async def test_what_cannot_be_used_is_not_stored(
    shell: Shell, pool: Pool, name: str, value: str, reason: str
) -> None:
    code, said = await shell.run("set", name, value)
    assert (code, name in said, reason in said) == (1, True, True)
    assert await pool.fetchval("SELECT count(*) FROM stored_settings") == 0


async def test_the_environment_wins_and_says_so(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    await shell.run("set", "EVERTALK_MODEL", "stored-model")
    monkeypatch.setenv("EVERTALK_MODEL", "given-model")
    assert "EVERTALK_MODEL=stored-model  (the environment wins)" in (await shell.run("list"))[1]
    assert "is set by the environment" in (await shell.run("set", "EVERTALK_MODEL", "other"))[1]


async def test_provider_key_is_sent_only_to_its_own_address(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shell.run("set", "ANTHROPIC_API_KEY", secret=KEY)
    code, said = await shell.run("set", "ANTHROPIC_BASE_URL", "https://elsewhere.example")
    assert (code, "give it again" in said) == (1, True)
    await shell.run("unset", "ANTHROPIC_API_KEY")
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    code, said = await shell.run("set", "ANTHROPIC_BASE_URL", "https://elsewhere.example")
    reason = "its key is set by the environment: set the address there, too"
    assert (code, said) == (1, f"evertalk: ANTHROPIC_BASE_URL: {reason}")


async def test_who_has_not_seen_the_last_change_changes_nothing(pool: Pool, tmp_path: Path) -> None:
    store = build_stored_settings(pool, load_settings(data_dir=tmp_path))
    assert await store.change({"EVERTALK_MODEL": "a"}, seen=0, by="anna") == 1
    assert await store.change({"EVERTALK_PRESET": "pantheon"}, seen=0, by="ben") is None
    found = await store.load()
    assert (found.version, found.values) == (1, {"EVERTALK_MODEL": "a"})
    assert found.rows[0].changed_by == "anna"


async def test_a_change_that_is_cut_off_leaves_nothing(pool: Pool, tmp_path: Path) -> None:
    def fall(point: str) -> None:
        assert point in CRASH_POINTS
        raise ConnectionResetError

    store = build_stored_settings(pool, load_settings(data_dir=tmp_path))
    store._crash_point = fall
    with pytest.raises((StorageUnavailable, ConnectionResetError)):
        await store.change({"EVERTALK_MODEL": "a"}, seen=0, by="anna")
    assert await store.load_version() == 0
    assert await pool.fetchval("SELECT count(*) FROM audit") == 0
