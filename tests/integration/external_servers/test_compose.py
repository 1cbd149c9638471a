"""docker-compose.yml without Docker: its secrets, commands and environments, on real servers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import yaml  # type: ignore[import-untyped]

from shared.adapters.embedded.binaries import find_binaries
from shared.adapters.embedded.process import die_with_parent
from tests.integration.external_servers.own_postgres import OwnPostgres, own_postgres
from tests.integration.external_servers.system_programs import postgres_programs
from tests.kit.deployment.person import Person
from tests.kit.deployment.processes import START_SECONDS, Process
from tests.kit.fakes.bot_api import TOKEN, USERNAME, running_bot_api
from tests.kit.fakes.messages_api.harness import RunningFake
from tests.kit.free_ports import free_port
from tests.kit.temp_folders import short_folder

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(TEXT)["services"]
REAL = "The words of the stored model."
SUPERUSERS = """
SELECT usename FROM pg_stat_activity JOIN pg_roles ON rolname = usename
 WHERE rolsuper AND backend_type = 'client backend' AND datname = 'evertalk' AND pid <> pg_backend_pid()
"""
FORBIDDEN = ("CREATE TABLE mine (id int)", "UPDATE audit SET actor = 'nobody'", "DROP TABLE notes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Composed:
    """The places that stand for those of the containers."""

    folder: Path
    postgres: OwnPostgres
    http_port: int

    @property
    def secrets(self) -> Path:
        return self.folder / "secrets"

    def read_secret(self, name: str) -> str:
        return (self.secrets / name).read_text().strip()

    def environment(self, service: str, env_file: Mapping[str, str]) -> dict[str, str]:
        """What the container is given, with an .env file of the operator."""
        found = {}
        for name, value in SERVICES[service].get("environment", {}).items():
            text = env_file.get(name) if value is None else re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", str(value))
            if text is not None:
                found[name] = self._place(text, service)
        if service == "web":
            found["EVERTALK_HTTP_PORT"] = str(self.http_port)
        return {"EVERTALK_ENV_FILE": "", "EVERTALK_LOG_FORMAT": "json", **found}

    def shell(self, service: str) -> str:
        """The script of a service that is one."""
        program, option, script = SERVICES[service]["command"]
        assert (program, option) == ("sh", "-c")
        return self._place(str(script).replace("$$", "$"), service)

    def process(self, service: str, **env_file: str) -> Process:
        assert SERVICES[service]["command"] == ["python", "-m", service]
        return Process(service, self.environment(service, env_file))

    async def run(self, service: str, *arguments: str, words: str = "") -> str:
        """As `docker compose run SERVICE python …` does; the output of a command that succeeds."""
        given = {**os.environ, **self.environment(service, {})}
        done = await asyncio.to_thread(
            subprocess.run, [sys.executable, *arguments], cwd=ROOT, env=given, input=words,
            capture_output=True, text=True, timeout=150,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return str(done.stdout)

    def _place(self, text: str, service: str) -> str:
        text = text.replace("/run/secrets", str(self.secrets)).replace(
            "/var/lib/evertalk", f"{self.folder}/data"
        )
        return text.replace("/tmp/process", f"{self.folder}/{service}.process")


@pytest.fixture
async def composed() -> AsyncIterator[Composed]:
    folder = short_folder("evd-")
    (folder / "postgres").mkdir()
    folder.chmod(0o755)
    try:
        async with AsyncExitStack() as stack:
            postgres = await stack.enter_async_context(own_postgres(folder / "postgres", plain_too=True))
            made = Composed(folder=folder, postgres=postgres, http_port=free_port())
            _make_secrets(folder)
            await postgres.create("evertalk")
            password = made.read_secret("postgres_password")
            await postgres.execute(f"ALTER ROLE evertalk SUPERUSER PASSWORD '{password}'")
            await stack.enter_async_context(_valkey(made))
            yield made
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _make_secrets(folder: Path) -> None:
    """By the commands that the file itself names."""
    lines = re.search(r"^#   mkdir -m 700 secrets.*?chmod 444 \*$", TEXT, re.MULTILINE | re.DOTALL)
    assert lines is not None
    script = lines[0].replace("#   ", "")
    subprocess.run(["sh", "-ec", script], cwd=folder, check=True, timeout=30)


def _point(composed: Composed, secret: str, host: str, port: int) -> None:
    path = composed.secrets / secret
    path.chmod(0o600)
    path.write_text(path.read_text().replace(f"@{host}", f"@127.0.0.1:{port}").replace(":6379", ""))
    path.chmod(0o444)


@contextlib.asynccontextmanager
async def _valkey(composed: Composed) -> AsyncIterator[None]:
    port = free_port()
    for secret in ("owner_url", "database_url"):
        _point(composed, secret, "postgres", composed.postgres.port)
    _point(composed, "redis_url", "valkey", port)
    script = composed.shell("valkey").replace("valkey-server", str(find_binaries().valkey_server))
    script = script.replace(
        "--maxmemory ", f"--port {port} --bind 127.0.0.1 --dir {composed.folder} --maxmemory "
    )
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", script, stdout=asyncio.subprocess.DEVNULL, preexec_fn=die_with_parent(signal.SIGTERM)
    )
    try:
        yield
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), 60)


async def make_roles(composed: Composed) -> None:
    """The service `roles`, by the psql of this machine."""
    script = composed.shell("roles").replace(
        "--host=postgres", f"--host=127.0.0.1 --port={composed.postgres.port}"
    )
    given = {**os.environ, "PATH": f"{postgres_programs()}:{os.environ['PATH']}"}
    done = await asyncio.to_thread(
        subprocess.run, ["sh", "-c", script], env=given, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


async def list_superusers(composed: Composed) -> list[str]:
    """Return who is connected to Evertalk's database as a superuser."""
    connection = await asyncpg.connect(
        composed.postgres.url(query="sslmode=disable"), timeout=30,
        password=composed.read_secret("postgres_password"),
    )  # fmt: skip
    try:
        return [row["usename"] for row in await connection.fetch(SUPERUSERS)]
    finally:
        await connection.close(timeout=10)


async def refused(url: str, statement: str) -> bool:
    connection = await asyncpg.connect(url, timeout=30)
    try:
        await connection.execute(statement, timeout=30)
    except asyncpg.InsufficientPrivilegeError:
        return True
    finally:
        await connection.close(timeout=10)
    return False


@pytest.mark.control("S38", "S39", "S44")
async def test_forms_of_the_dashboard_work_in_every_service_of_compose(composed: Composed) -> None:
    """The sentence of README, "nothing has to be restarted", for processes that are started one by one."""
    assert "nothing\nhas to be restarted" in (ROOT / "README.md").read_text()
    for _ in range(2):
        await make_roles(composed)
        await composed.run("migrate", *SERVICES["migrate"]["command"][1:])
    async with AsyncExitStack() as stack, RunningFake() as fake, running_bot_api() as api:
        await fake.script([{"match": {"kind": "chat"}, "times": 50, "action": {"text": REAL}}])
        telegram = {"EVERTALK_TELEGRAM_API_URL": api.base_url, "EVERTALK_TELEGRAM_ACCESS": "open"}
        web = await stack.enter_async_context(composed.process("web"))
        worker = await stack.enter_async_context(composed.process("worker"))
        bot = composed.process("bot", **telegram)
        bot.begin()
        stack.push_async_callback(bot.stop)
        await bot.until_event("bot_waits_for_token")
        async with Person(composed.http_port) as anna:
            assert (await anna.ask("Who are you?"))["text"] != REAL
            settings = ("-m", "shared", "settings", "set")
            await composed.run("web", *settings, "ANTHROPIC_BASE_URL", fake.base_url)
            await composed.run("web", *settings, "ANTHROPIC_API_KEY", words="a-key-for-the-fake\n")
            await composed.run("web", *settings, "TELEGRAM_BOT_TOKEN", words=f"{TOKEN}\n")
            ben = await api.person(5_001)
            await ben.say("Good day.")
            await ben.sees(
                lambda screen: any(line.text == REAL for line in screen.answers), within=START_SECONDS
            )
            await worker.until_event("settings_followed", times=2)
            link = await composed.run("bot", "-m", "shared", "pairing", "owner")
            assert f"t.me/{USERNAME}" in link
            while (await anna.ask("And now?"))["text"] != REAL:
                assert len(anna.said) < 30, web.words()
        assert (web.exits, worker.exits, bot.exits) == ([], [], [])
        for name in ("worker", "bot"):
            program, *arguments = SERVICES[name]["healthcheck"]["test"][1:]
            assert program == "python"
            await composed.run(name, *arguments)
        assert await list_superusers(composed) == []
        for statement in FORBIDDEN:
            assert await refused(composed.read_secret("database_url"), statement), statement


async def test_backup_of_compose_is_made_with_few_rights(composed: Composed) -> None:
    await make_roles(composed)
    await composed.run("migrate", *SERVICES["migrate"]["command"][1:])
    assert "backup" in await composed.run("backup", "-m", "shared", "backup")


async def test_data_of_the_superuser_are_given_to_the_roles(composed: Composed) -> None:
    """An earlier version of the file let everything belong to the superuser."""
    password = composed.read_secret("postgres_password")
    url = f"postgresql://evertalk:{password}@127.0.0.1:{composed.postgres.port}/evertalk?sslmode=disable"
    owner = composed.secrets / "owner_url"
    kept = owner.read_text()
    owner.chmod(0o600)
    owner.write_text(url)
    await composed.run("migrate", *SERVICES["migrate"]["command"][1:])
    owner.write_text(kept)
    await make_roles(composed)
    await composed.run("migrate", *SERVICES["migrate"]["command"][1:])
    async with composed.process("web"), Person(composed.http_port) as anna:
        assert (await anna.ask("Are you there?"))["text"]
    for statement in FORBIDDEN:
        assert await refused(composed.read_secret("database_url"), statement), statement
