"""A verb of the shell writes the same audit entries as the REST operation that makes the same change."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import aiohttp
import pytest
from aiohttp import web
from pydantic import SecretStr

from shared.__main__ import VERB_NAMES
from shared.adapters.postgres.db.workers import PostgresWorkers
from shared.adapters.postgres.people.operator_auth import create_login_link
from shared.adapters.postgres.telegram.access import PostgresTelegramAccess
from shared.cli.agent import read_agent_arguments
from shared.cli.alert import read_alert_arguments, run_alert
from shared.cli.key import read_key_arguments
from shared.cli.operator import read_operator_arguments, run_operator
from shared.cli.pairing import read_pairing_arguments, run_pairing
from shared.cli.past.arguments import read_import_arguments
from shared.cli.person import PersonTerminal, read_person_arguments, run_person
from shared.cli.site import read_site_arguments
from shared.config.bots import BotConfig
from shared.config.settings import load_settings
from shared.core.identity.operators import COMMAND_LINE
from tests.integration.cli.terminal_driver import TerminalDriver, terminal, writes
from tests.kit.audit import AuditEntry, read_audit
from tests.kit.dashboard.people_seed import a_bot
from tests.kit.dashboard.seed import a_session
from tests.kit.dashboard.serve import served
from tests.kit.web.callers import make_operator

__all__ = ["terminal"]

BOT = 777
PASSWORD = "three yellow cups"
PARSERS: Mapping[str, Callable[[Sequence[str]], argparse.Namespace]] = {
    "agent": read_agent_arguments,
    "site": read_site_arguments,
    "key": read_key_arguments,
    "operator": read_operator_arguments,
    "person": read_person_arguments,
    "pairing": read_pairing_arguments,
    "alert": read_alert_arguments,
    "import": read_import_arguments,
}
"""Verbs that change what operators own, with the parsers of their parts."""
WHOLE = frozenset({"login-link", "command"})
"""Such verbs without parts."""
INSTALLATION = frozenset(VERB_NAMES) - PARSERS.keys() - WHOLE - {"settings"}
"""Verbs that work on processes, files and the schema of an installation, which REST does not reach."""

READS = frozenset(
    {
        "agent list", "agent show", "agent export", "site list", "site show", "site snippet",
        "site secret list", "key list", "operator list", "person list", "pairing list", "import list",
    }
)  # fmt: skip
"""Parts that change nothing: the shell has the database, so reading leaves no entry."""
ALONE = {
    "agent delete": "REST deletes no agent",
    "key create": "REST makes no key, so that no page can give away access to all conversations",
    "key revoke": "REST makes no key, and revokes none",
    "operator totp reset": "REST resets no second factor of another operator: who has the machine does",
    "import telegram": "REST imports for the person and for API keys only, with the entries of a key",
    "import chatgpt": "as `import telegram`",
    "import claude": "as `import telegram`",
    "import whatsapp": "as `import telegram`",
    "import undo": "REST undoes for the person and for API keys only",
    "import summarise": "REST switches summaries for the person and for API keys only",
    "import stop": "as `import summarise`",
    "command": "its REST operation is no page's: test_commands_api and test_command_cli name one entry",
}
"""Parts without an operation of operators, each with the reason."""


@dataclass(slots=True, kw_only=True)
class Deployment:
    """Shell and REST of one deployment."""

    pool: Any
    terminal: TerminalDriver
    url: str
    http: aiohttp.ClientSession
    cookies: Mapping[str, str]

    async def rest(self, method: str, path: str, *, match: int | None = None, **body: Any) -> Any:
        headers = dict(self.cookies) | ({} if match is None else {"If-Match": f'"{match}"'})
        url = f"{self.url}/api/v1{path}"
        async with self.http.request(method, url, headers=headers, json=body or None) as response:
            assert response.status < 300, (response.status, await response.text())
            return await response.read()

    async def agent(self, *words: str, **more: Any) -> None:
        code, said = await self.terminal.agent(*words, **more)
        assert code == 0, said

    async def site(self, *words: str) -> None:
        code, said = await self.terminal.site(*words)
        assert code == 0, said

    async def operator(self, *words: str) -> None:
        code = await run_operator(
            read_operator_arguments(words), database_url=self.terminal.database_url, say=_ignore,
            tell=_ignore, ask=lambda: PASSWORD, url=lambda token: token,
        )  # fmt: skip
        assert code == 0

    async def person(self, verb: str, person: str) -> None:
        hands = PersonTerminal(say=_ignore, ask=lambda _: person, write=lambda _: None)
        wish = read_person_arguments([verb, person])
        assert await run_person(wish, database_url=self.terminal.database_url, terminal=hands) == 0

    async def pairing(self, *words: str) -> None:
        bot = BotConfig(
            token=SecretStr(f"{BOT}:{'x' * 35}"), token_name="TELEGRAM_BOT_TOKEN", agent="default",
            audience="personal", access="pairing", allowed=frozenset(), mode="polling",
        )  # fmt: skip
        wish = read_pairing_arguments(words)
        assert await run_pairing(wish, database_url=self.terminal.database_url, bots=[bot], say=_ignore) == 0

    async def make_person(self) -> str:
        async with self.pool.acquire() as connection:
            seeded = await a_session(connection, person="Ada", turns=1)
        return str(
            await self.pool.fetchval("SELECT public_id FROM contacts WHERE id = $1", seeded.contact_id)
        )

    async def request_access(self, chat: int) -> str:
        access = PostgresTelegramAccess(self.pool)
        row = await access.request_access(BOT, chat, name="Ada", username="ada")
        assert row is not None
        return str(row.code)

    async def find_operator(self, name: str) -> str:
        return str(await self.pool.fetchval("SELECT public_id FROM operators WHERE name = $1", name))


def _ignore(_: str) -> None:
    return None


@pytest.fixture
async def deployment(
    database_url: str, pool: Any, tmp_path: Path, terminal: TerminalDriver
) -> AsyncIterator[Deployment]:
    settings = load_settings(
        data_dir=tmp_path, secret_key="k" * 40, alert_webhook_url="https://hooks.example/a",
        alert_webhook_secret="s" * 40,
    )  # fmt: skip
    async with pool.acquire() as connection:
        await a_bot(connection)
    async with (
        served(web.Application(), pool=pool, settings=settings, commands=None) as url,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as http,
    ):
        cookies = await make_operator(pool, "admin")
        yield Deployment(pool=pool, terminal=terminal, url=url, http=http, cookies=cookies)


Change: TypeAlias = Callable[[], Awaitable[object]]
Pair: TypeAlias = Callable[[Deployment], Awaitable[tuple[Change, Change]]]
"""Prepare what a verb and an operation change, and return both."""


async def create_agent(on: Deployment) -> tuple[Change, Change]:
    return lambda: on.agent("create", "one"), lambda: on.rest("POST", "/agents", name="two")


async def edit_agent(on: Deployment) -> tuple[Change, Change]:
    await on.agent("create", "one")
    await on.agent("create", "two")
    config = {"persona": "You are Ada."}
    return (
        lambda: on.agent("edit", "one", edit=writes(config)),
        lambda: on.rest("PUT", "/agents/two", match=1, config=config),
    )


async def import_agent(on: Deployment) -> tuple[Change, Change]:
    await on.agent("create", "one")
    await on.agent("create", "two")
    file = on.terminal.folder / "one.json"
    file.write_text(json.dumps({"agent": "one", "config": {"persona": "You are Ada."}}), encoding="utf-8")
    return (
        lambda: on.agent("import", str(file)),
        lambda: on.rest("PUT", "/agents/two", match=1, config={"persona": "You are Ada."}),
    )


async def assign_agent(on: Deployment) -> tuple[Change, Change]:
    await on.site("add", "one")
    await on.site("add", "two")
    await on.agent("create", "ada")
    return (
        lambda: on.agent("assign", "ada", "--site", "one", "--existing"),
        lambda: on.rest("POST", "/agents/ada/sites", site="two", existing=True),
    )


async def add_site(on: Deployment) -> tuple[Change, Change]:
    return lambda: on.site("add", "one"), lambda: on.rest("POST", "/sites", name="two")


async def edit_site(on: Deployment) -> tuple[Change, Change]:
    await on.site("add", "one")
    await on.site("add", "two")
    form = {"agent": "default", "audience": "public", "origins": []}
    return (
        lambda: on.site("edit", "one", "--audience", "public"),
        lambda: on.rest("PUT", "/sites/two/settings", match=1, settings=form),
    )


async def add_secret(on: Deployment) -> tuple[Change, Change]:
    await on.site("add", "one")
    await on.site("add", "two")
    return lambda: on.site("secret", "one", "add"), lambda: on.rest("POST", "/sites/two/secrets")


async def revoke_secret(on: Deployment) -> tuple[Change, Change]:
    for name in ("one", "two"):
        await on.site("add", name)
        await on.site("secret", name, "add")
    ids = dict(await on.pool.fetch("SELECT site, secret_id FROM site_secrets"))
    return (
        lambda: on.site("secret", "one", "revoke", ids["one"]),
        lambda: on.rest("DELETE", f"/sites/two/secrets/{ids['two']}"),
    )


async def add_operator(on: Deployment) -> tuple[Change, Change]:
    return (
        lambda: on.operator("add", "one"),
        lambda: on.rest("POST", "/operators", name="two", role="operator"),
    )


async def revoke_operator(on: Deployment) -> tuple[Change, Change]:
    await on.operator("add", "one")
    await on.operator("add", "two")
    place = f"/operators/{await on.find_operator('two')}"
    return (
        lambda: on.operator("revoke", "one"),
        lambda: on.rest("PATCH", place, version=1, locked=True),
    )


async def set_password(on: Deployment) -> tuple[Change, Change]:
    await on.operator("add", "one")
    return (
        lambda: on.operator("passwd", "one"),
        lambda: on.rest("POST", "/me/password", password=PASSWORD),
    )


async def make_login_link(on: Deployment) -> tuple[Change, Change]:
    await on.operator("add", "two")
    place = f"/operators/{await on.find_operator('two')}/link"
    return lambda: create_login_link(on.terminal.database_url), lambda: on.rest("POST", place)


async def export_person(on: Deployment) -> tuple[Change, Change]:
    one, two = await on.make_person(), await on.make_person()
    return lambda: on.person("export", one), lambda: on.rest("GET", f"/people/{two}/export")


async def erase_person(on: Deployment) -> tuple[Change, Change]:
    one, two = await on.make_person(), await on.make_person()
    return (
        lambda: on.person("erase", one),
        lambda: on.rest("POST", f"/people/{two}/erasure", confirm=two),
    )


async def hold_person(on: Deployment) -> tuple[Change, Change]:
    one, two = await on.make_person(), await on.make_person()
    return lambda: on.person("hold", one), lambda: on.rest("POST", f"/people/{two}/hold", on=True)


async def release_person(on: Deployment) -> tuple[Change, Change]:
    one, two = await on.make_person(), await on.make_person()
    await on.person("hold", one)
    await on.person("hold", two)
    return lambda: on.person("release", one), lambda: on.rest("POST", f"/people/{two}/hold", on=False)


async def approve_chat(on: Deployment) -> tuple[Change, Change]:
    one, two = await on.request_access(41), await on.request_access(42)
    return lambda: on.pairing("approve", one), lambda: on.rest("POST", "/pairing", action="approve", code=two)


async def deny_chat(on: Deployment) -> tuple[Change, Change]:
    one, two = await on.request_access(41), await on.request_access(42)
    return lambda: on.pairing("deny", one), lambda: on.rest("POST", "/pairing", action="refuse", code=two)


async def revoke_chat(on: Deployment) -> tuple[Change, Change]:
    await on.pairing("approve", await on.request_access(41))
    await on.pairing("approve", await on.request_access(42))
    return (
        lambda: on.pairing("revoke", "41"),
        lambda: on.rest("POST", "/pairing", action="block", bot=BOT, chat=42),
    )


async def make_owner_link(on: Deployment) -> tuple[Change, Change]:
    return lambda: on.pairing("owner"), lambda: on.rest("POST", f"/pairing/{BOT}/owner-link")


async def send_alert(on: Deployment) -> tuple[Change, Change]:
    await PostgresWorkers(on.pool).register("web")
    url = on.terminal.database_url
    return (
        lambda: run_alert(database_url=url, targets=["webhook"], say=_ignore, wait_seconds=0.1),
        lambda: on.rest("POST", "/alerts/test"),
    )


PAIRS: Mapping[str, Pair] = {
    "agent create": create_agent,
    "agent edit": edit_agent,
    "agent import": import_agent,
    "agent assign": assign_agent,
    "site add": add_site,
    "site edit": edit_site,
    "site secret add": add_secret,
    "site secret revoke": revoke_secret,
    "operator add": add_operator,
    "operator passwd": set_password,
    "operator revoke": revoke_operator,
    "login-link": make_login_link,
    "person export": export_person,
    "person erase": erase_person,
    "person hold": hold_person,
    "person release": release_person,
    "pairing approve": approve_chat,
    "pairing deny": deny_chat,
    "pairing revoke": revoke_chat,
    "pairing owner": make_owner_link,
    "alert test": send_alert,
}


@pytest.mark.parametrize("verb", PAIRS)
async def test_verb_writes_the_audit_entries_of_its_rest_operation(deployment: Deployment, verb: str) -> None:
    in_shell, over_rest = await PAIRS[verb](deployment)
    entries, others = await record(deployment, in_shell), await record(deployment, over_rest)
    assert entries
    assert {entry.actor for entry in entries} == {COMMAND_LINE}
    assert [describe(entry) for entry in entries] == [describe(entry) for entry in others]


async def record(on: Deployment, change: Change) -> list[AuditEntry]:
    newest = await on.pool.fetchval("SELECT coalesce(max(id), 0) FROM audit")
    await change()
    return await read_audit(on.pool, after=newest)


_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}")
_NAME = re.compile(r"\b(?:one|two)\b")


def describe(entry: AuditEntry) -> tuple[str, str, list[str]]:
    """Return action, kind of object and names of details: what differs is only which object it is."""
    about = re.sub(r"\d+", "<number>", _NAME.sub("<name>", _ID.sub("<id>", entry.about)))
    return entry.action, about, sorted(entry.detail)


def test_each_verb_of_operators_has_a_rest_operation_or_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", lambda parser, *_: parser)
    parts = {
        f"{verb} {part}"
        for verb, read in PARSERS.items()
        for part in list_parts(read([]))  # type: ignore[arg-type]
    }
    assert parts | WHOLE == READS | ALONE.keys() | PAIRS.keys()
    assert not READS & PAIRS.keys()
    assert not ALONE.keys() & PAIRS.keys()
    assert all(ALONE.values())


def list_parts(parser: argparse.ArgumentParser) -> list[str]:
    """Return the words that choose what a verb does, such as `secret add`."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return [
                f"{name} {word}".strip()
                for name, one in action.choices.items()
                for word in next((each.choices for each in one._actions if each.dest == "what"), ("",))
            ]
    raise AssertionError("a verb without parts belongs to WHOLE")


def test_verbs_of_the_installation_are_named() -> None:
    assert sorted(INSTALLATION) == [
        "audit", "backup", "database", "demo", "doctor", "eval", "install", "migrate", "psql", "replay",
        "restore", "service", "setup", "test", "up", "upgrade", "version",
    ]  # fmt: skip
