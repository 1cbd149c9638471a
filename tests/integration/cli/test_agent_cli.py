"""Agents and sites at the terminal, on a real database: nothing typed is lost, nobody is overwritten."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shared.adapters.postgres.people.agents import PostgresAgents
from shared.adapters.postgres.people.operator_auth import Operators
from shared.adapters.postgres.people.visitors import PostgresVisitors, generate_token
from shared.adapters.postgres.telegram.chats import PostgresTelegramChats
from shared.cli.editor_session import find_editor
from tests.integration.cli.terminal_driver import Pool, TerminalDriver, terminal, writes

__all__ = ["terminal"]


async def config_of(pool: Pool, name: str = "default") -> object:
    return await pool.fetchval("SELECT config FROM agents WHERE name = $1", name)


async def test_a_list_fits_into_eighty_columns(terminal: TerminalDriver, pool: Pool) -> None:
    await terminal.agent("create", "a-very-long-name-of-an-agent-indeed")
    await pool.execute('UPDATE agents SET config = \'{"model": "claude-sonnet-5-5-with-a-tail"}\'')
    for name in ("shop-of-the-north", "shop-of-the-south"):
        await terminal.site("add", name, "--origin", "https://a.very.long.host.example.org")
    code, said = await terminal.agent("list")
    assert code == 0
    assert "default" in said
    assert all(len(line) <= 80 for line in said.splitlines())
    _, sites = await terminal.site("list")
    assert all(len(line) <= 80 for line in sites.splitlines())


async def test_agent_edit_is_stored_confirmed_and_audited(terminal: TerminalDriver, pool: Pool) -> None:
    code, said = await terminal.agent("edit", "default", edit=writes({"persona": "You are Ada."}))
    assert (code, said) == (0, "default is at version 2; it holds from each conversation's next message on.")
    assert await config_of(pool) == {"persona": "You are Ada."}
    row = await pool.fetchrow("SELECT actor, action, object, detail FROM audit ORDER BY id DESC LIMIT 1")
    assert row is not None
    agent_id = await pool.fetchval("SELECT id::text FROM agents WHERE name = 'default'")
    assert tuple(row) == ("command line", "agent.changed", agent_id, {"version": 2})
    operators = Operators(pool)
    assert await operators.find_broken_audit_link() is None
    await operators.close()
    assert not list((terminal.folder / "drafts").iterdir())


async def test_the_editor_is_given_what_there_is_in_a_private_file(
    terminal: TerminalDriver, pool: Pool
) -> None:
    await pool.execute('UPDATE agents SET config = \'{"persona": "Grüße"}\'')

    def look(path: Path) -> int:
        assert json.loads(path.read_text(encoding="utf-8")) == {"persona": "Grüße"}
        assert path.stat().st_mode & 0o077 == 0
        return 0

    assert await terminal.agent("edit", "default", edit=look) == (0, "Nothing was changed.")
    assert await pool.fetchval("SELECT version FROM agents") == 1


async def test_invalid_agent_config_is_reported_and_edited_again(
    terminal: TerminalDriver, pool: Pool
) -> None:
    terminal.answers = ["", "y"]
    code, said = await terminal.agent(
        "edit", "default", edit=writes('{"persona": }', {"personna": "x"}, {"persona": "x"})
    )
    assert code == 0
    assert "line 1, column 13: is not JSON" in said
    assert "personna: there is no such key; did you mean persona?" in said
    assert await config_of(pool) == {"persona": "x"}


async def test_abandoned_edit_leaves_a_draft(terminal: TerminalDriver, pool: Pool) -> None:
    terminal.answers = ["n"]
    code, said = await terminal.agent("edit", "default", edit=writes({"personna": "hours of work"}))
    assert code == 1
    assert "Your draft is in" in said
    assert await config_of(pool) == {}

    def repair(path: Path) -> int:
        path.write_text(path.read_text().replace("personna", "persona"))
        return 0

    code, said = await terminal.agent("edit", "default", edit=repair)
    assert code == 0
    assert said.startswith("Going on with the draft in")
    assert await config_of(pool) == {"persona": "hours of work"}


async def test_without_a_person_to_ask_the_draft_stays(terminal: TerminalDriver) -> None:
    code, said = await terminal.agent("edit", "default", edit=writes("nonsense"))
    assert code == 1
    assert "Your draft is in" in said


@pytest.mark.parametrize("words", [b"\xff\xfe\x00", b""])
async def test_an_editor_that_leaves_rubbish_changes_nothing(
    terminal: TerminalDriver, pool: Pool, words: bytes
) -> None:
    def spoil(path: Path) -> int:
        path.write_bytes(words)
        return 0

    code, _ = await terminal.agent("edit", "default", edit=spoil)
    assert code == 1
    assert await config_of(pool) == {}


async def test_an_editor_that_fails_or_takes_the_file_away_changes_nothing(
    terminal: TerminalDriver, pool: Pool
) -> None:
    code, said = await terminal.agent("edit", "default", edit=lambda _: 3)
    assert (code, said.splitlines()[-1][:25]) == (1, "The editor ended with 3. ")

    def remove(path: Path) -> int:
        path.unlink()
        return 0

    code, said = await terminal.agent("edit", "default", edit=remove)
    assert code == 1
    assert await pool.fetchval("SELECT version FROM agents") == 1


async def test_concurrent_agent_change_is_never_overwritten(terminal: TerminalDriver, pool: Pool) -> None:
    def slow(path: Path) -> int:
        path.write_text('{"persona": "mine"}')
        return 0

    agents = PostgresAgents(pool)
    row = await agents.find("default")
    assert row is not None
    assert await agents.change("default", {"persona": "theirs"}, seen=row.version, by="test") == 2
    assert await agents.change("default", {"persona": "late"}, seen=row.version, by="test") is None
    # The same through the terminal: the row moves while the editor is open.
    await pool.execute(
        """CREATE FUNCTION moved() RETURNS trigger LANGUAGE plpgsql AS $$
           BEGIN RETURN NULL; END $$;
           CREATE TRIGGER moved BEFORE UPDATE ON agents FOR EACH ROW EXECUTE FUNCTION moved()"""
    )
    code, said = await terminal.agent("edit", "default", edit=slow)
    assert code == 1
    assert "Somebody else changed default meanwhile" in said
    assert "Your draft is in" in said
    assert await config_of(pool) == {"persona": "theirs"}


async def test_export_and_import_make_the_same_agent_again(terminal: TerminalDriver, pool: Pool) -> None:
    wanted = {"persona": 'Zoë 🌿\nsays "hello"', "caps": {"session_usd": 1.5}, "modes": {"x": "y"}}
    await terminal.agent("create", "shop")
    await terminal.agent("edit", "shop", edit=writes(wanted))
    file = terminal.folder / "shop.json"
    assert (await terminal.agent("export", "shop", str(file)))[0] == 0
    assert (await terminal.agent("export", "shop", str(file)))[0] == 1
    _, printed = await terminal.agent("export", "shop")
    assert json.loads(printed) == json.loads(file.read_text())
    assert (await terminal.agent("delete", "shop"))[0] == 0
    assert (await terminal.agent("import", str(file)))[0] == 0
    assert await config_of(pool, "shop") == wanted
    _, shown = await terminal.agent("show", "shop")
    assert json.loads(shown) == wanted


async def test_import_over_newer_row_needs_no_version_or_is_refused(
    terminal: TerminalDriver, pool: Pool
) -> None:
    file = terminal.folder / "default.json"
    await terminal.agent("export", "default", str(file))
    await terminal.agent("edit", "default", edit=writes({"persona": "newer"}))
    code, said = await terminal.agent("import", str(file))
    assert code == 1
    assert "default is at version 2, the file was made from version 1" in said
    assert await config_of(pool) == {"persona": "newer"}
    file.write_text('{"agent": "default", "config": {"persona": "mine"}}')
    assert (await terminal.agent("import", str(file)))[0] == 0
    assert await config_of(pool) == {"persona": "mine"}


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"agent": "X Y", "config": {}}', '{"agent": "a", "config": []}',
     '{"agent": "a", "config": {}, "version": true}', '{"agent": "a", "config": {}, "more": 1}',
     '{"agent": "a", "config": {"personna": ""}}', "\ufeff{"],
)  # fmt: skip
async def test_a_file_that_cannot_be_used_makes_no_agent(
    terminal: TerminalDriver, pool: Pool, text: str
) -> None:
    file = terminal.folder / "file.json"
    file.write_text(text, encoding="utf-8")
    code, said = await terminal.agent("import", str(file))
    assert code == 1
    assert "nothing was changed" in said
    assert await pool.fetchval("SELECT count(*) FROM agents") == 1


async def test_names_are_plain_and_taken_once(terminal: TerminalDriver) -> None:
    assert (await terminal.agent("create", "shop"))[0] == 0
    assert (await terminal.agent("create", "shop"))[0] == 1
    for name in ("Shop", "a b", "../x", "", "x" * 41, "\x1b[31m"):
        code, said = await terminal.agent("create", name)
        assert code == 1
        assert "\x1b" not in said
    code, said = await terminal.agent("show", "shopp")
    assert (code, said) == (1, "There is no agent “shopp”. There are: default, shop.")


async def test_agent_in_use_cannot_be_deleted(terminal: TerminalDriver, pool: Pool) -> None:
    await terminal.agent("create", "shop")
    await terminal.site("add", "north", "--agent", "shop")
    code, said = await terminal.agent("delete", "shop")
    assert code == 1
    assert "shop still answers: site north" in said
    assert (await terminal.agent("delete", "default"))[0] == 1
    await terminal.agent("assign", "default", "--site", "north")
    await pool.execute(
        """INSERT INTO knowledge (agent_id, path, place, sha256, text, terms, vector)
           SELECT id, 'returns.md', 0, '', 'Thirty days.', 2, '' FROM agents WHERE name = 'shop'"""
    )
    assert (await terminal.agent("delete", "shop"))[0] == 0
    assert await pool.fetchval("SELECT count(*) FROM knowledge") == 0


async def test_site_is_assigned_to_agent_for_new_or_all_conversations(
    terminal: TerminalDriver, pool: Pool
) -> None:
    await terminal.agent("create", "shop")
    visitors = PostgresVisitors(pool)
    before = await visitors.create(generate_token(), site="default")
    code, said = await terminal.agent("assign", "shop", "--site", "default")
    assert code == 0
    assert "--existing moves them, too" in said
    after = await visitors.create(generate_token(), site="default")
    assert before is not None
    assert after is not None
    sql = "SELECT a.name FROM sessions s JOIN agents a ON a.id = s.agent_id WHERE s.id = $1"
    assert await pool.fetchval(sql, before.session_id) == "default"
    assert await pool.fetchval(sql, after.session_id) == "shop"
    _, said = await terminal.agent("assign", "shop", "--site", "default", "--existing")
    assert "1 conversation moved to shop and goes on with its next message." in said
    assert await pool.fetchval(sql, before.session_id) == "shop"
    assert (await terminal.agent("assign", "shop", "--site", "nowhere"))[0] == 1


async def test_bot_agent_comes_from_file_and_its_sessions_can_move(
    terminal: TerminalDriver, pool: Pool
) -> None:
    await PostgresTelegramChats(pool).enrol(
        7, username="ever_bot", agent="default", audience="personal", access="open", mode="polling"
    )
    await terminal.agent("create", "shop")
    code, said = await terminal.agent("assign", "shop", "--bot", "@Ever_Bot")
    assert code == 1
    assert "bots file" in said
    assert (await terminal.agent("assign", "shop", "--bot", "7", "--existing"))[0] == 0
    assert (await terminal.agent("assign", "shop", "--bot", "other", "--existing"))[0] == 1


async def test_a_site_is_made_and_changed(terminal: TerminalDriver, pool: Pool) -> None:
    await terminal.agent("create", "shop")
    code, said = await terminal.site(
        "add", "north", "--agent", "shop", "--audience", "public", "--origin", "https://a.example",
        "--origin", "b.example",
    )  # fmt: skip
    assert code == 0
    assert 'data-site="north"' in said
    assert (await terminal.site("add", "north"))[0] == 1
    assert (await terminal.site("edit", "north", "--audience", "personal"))[0] == 0
    row = await pool.fetchrow("SELECT audience, allowed_origins FROM sites WHERE name = 'north'")
    assert row is not None
    assert tuple(row) == ("personal", ["https://a.example", "b.example"])
    for wish, kept in (("on", "true"), ("off", "false")):
        assert (await terminal.site("edit", "north", "--uploads", wish))[0] == 0
        assert (await terminal.site("edit", "north", "--audience", "personal"))[0] == 0
        assert await pool.fetchval("SELECT config ->> 'uploads' FROM sites WHERE name = 'north'") == kept
    wrong_ones = (
        ["edit", "south"], ["add", "x", "--agent", "none"], ["add", "Ä"],
        ["add", "x", "--origin", "javascript:alert(1)"], ["add", "x", "--origin", "https://a.example/path"],
    )  # fmt: skip
    for wrong in wrong_ones:
        assert (await terminal.site(*wrong))[0] == 1, wrong
    assert await pool.fetchval("SELECT count(*) FROM sites") == 2


@pytest.mark.parametrize(
    ("environ", "command"),
    [
        ({"VISUAL": "code --wait", "EDITOR": "vi"}, ["code", "--wait"]),
        ({"EDITOR": "'/opt/my editor/ed' -f"}, ["/opt/my editor/ed", "-f"]),
    ],
)
def test_the_editor_is_the_one_of_the_environment(environ: dict[str, str], command: list[str]) -> None:
    assert find_editor(environ) == command
