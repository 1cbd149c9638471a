"""`up` and its children: started again when they fall, stopped in order, never left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import aiohttp
import pytest
from aiohttp import web
from pytest_aiohttp import AiohttpServer

from shared.adapters.embedded.folders import FolderLock
from shared.adapters.embedded.process import is_running_as, wait_until
from shared.adapters.models import LocalServer
from shared.adapters.models.catalog import Wire
from shared.cli.setup import merge_settings, run_setup
from shared.cli.startup.steps import describe_caps
from shared.cli.up import up
from shared.config.settings import load_settings
from shared.supervision.child_process import ChildMisconfigured, ChildProcess
from tests.kit.deployment.up_process import PATIENCE_SECONDS, ROOT, environment, start_up, stopped
from tests.kit.fakes.bot_api import TOKEN, USERNAME, running_bot_api
from tests.kit.suite.time_limit import count_times

__all__ = ["environment", "stopped"]


needs_all_processes = pytest.mark.skipif(
    not all((ROOT / name / "__main__.py").exists() for name in ("web", "worker")),
    reason="web and worker are not there yet",
)


def child(folder: Path, code: str, said: list[str]) -> ChildProcess:
    return ChildProcess(
        name="sample",
        environment=dict(os.environ),
        folder=folder,
        say=said.append,
        command=(sys.executable, "-c", code),
    )


async def until_said(said: list[str], words: str, times: int = 1) -> None:
    async with asyncio.timeout(20):
        while sum(words in line for line in said) < times:
            await asyncio.sleep(0.02)


async def test_a_child_that_falls_is_started_again(tmp_path: Path) -> None:
    said: list[str] = []
    fragile = child(tmp_path, "print('no luck'); raise SystemExit(7)", said)
    running = asyncio.create_task(fragile.run())
    await until_said(said, "ended (exit code 7: no luck); starting it again", times=2)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await fragile.stop(timeout_seconds=5)


async def test_a_child_that_refuses_its_configuration_is_not_started_again(tmp_path: Path) -> None:
    refusing = child(tmp_path, "print('EVERTALK_X=1: wrong'); raise SystemExit(2)", [])
    with pytest.raises(ChildMisconfigured, match="EVERTALK_X=1: wrong"):
        await refusing.run()
    await refusing.stop(timeout_seconds=5)


async def test_warnings_reach_the_terminal_and_everything_the_log(tmp_path: Path) -> None:
    said: list[str] = []
    lines = ['{"event": "all is well", "level": "info"}', '{"event": "look here", "level": "warning"}']
    talking = child(
        tmp_path, f"import time; print({chr(10).join(lines)!r}, flush=True); time.sleep(60)", said
    )
    running = asyncio.create_task(talking.run())
    await until_said(said, "look here")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await talking.stop(timeout_seconds=5)
    assert said == ["sample: warning: look here"]
    assert (tmp_path / "logs" / "sample.log").read_text().splitlines() == lines


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a file without room")
async def test_a_log_without_room_is_said_once_and_ends_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "sample.log").symlink_to("/dev/full")
    lines = ['{"event": "look here", "level": "warning"}'] * 5 + ['{"event": "the end", "level": "warning"}']
    talking = child(
        tmp_path, f"import time; print({chr(10).join(lines)!r}, flush=True); time.sleep(60)", said
    )
    running = asyncio.create_task(talking.run())
    await until_said(said, "the end")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await talking.stop(timeout_seconds=5)
    assert said == [
        "sample: its log cannot be written (No space left on device); free some disk space",
        "sample: warning: look here",
        "sample: warning: the end",
    ]


async def test_a_stubborn_child_is_killed(tmp_path: Path) -> None:
    said: list[str] = []
    code = (
        'import signal, time; signal.signal(15, lambda *_: None); print(\'{"level": "error"}\', flush=True)'
    )
    stubborn = child(tmp_path, code + "\nwhile True: time.sleep(1)", said)
    running = asyncio.create_task(stubborn.run())
    await until_said(said, "error")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert stubborn.pid is not None
    await stubborn.stop(timeout_seconds=0.2)
    assert "was killed" in said[-1]
    assert not is_running_as(stubborn.pid, (sys.executable,))


async def test_a_child_of_an_earlier_life_is_stopped_first(tmp_path: Path) -> None:
    code = 'import time; print(\'{"level": "error"}\', flush=True); time.sleep(60)'
    leftover = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL)
    # A process has its command line a moment after it was begun.
    assert await wait_until(lambda: is_running_as(leftover.pid, (code,)), timeout_seconds=20)
    (tmp_path / "sample.pid").write_text(f"{leftover.pid}\n")
    said: list[str] = []
    fresh = child(tmp_path, code, said)
    running = asyncio.create_task(fresh.run())
    assert await asyncio.to_thread(leftover.wait, 20) == -signal.SIGTERM
    await until_said(said, "error")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await fresh.stop(timeout_seconds=5)


def test_caps_are_described_in_plain_text() -> None:
    assert describe_caps(load_settings()) == "at most $5.00 a day in all"
    public = load_settings(profile="public")
    assert describe_caps(public) == "at most $5.00 a day in all, $0.25 a day per visitor"


def evertalk(*arguments: str, environment: dict[str, str], **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "shared", *arguments],
        env={**environment, **more},
        capture_output=True,
        text=True,
        timeout=60,
        cwd="/",
    )


@pytest.mark.control("S46")
def test_bad_settings_end_with_2_and_without_a_traceback(environment: dict[str, str]) -> None:
    done = evertalk("up", environment=environment, EVERTALK_HTTP_PORT="http")
    assert done.returncode == 2
    assert "EVERTALK_HTTP_PORT=http" in done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_contradictory_numbers_are_refused_once_before_anything_starts(environment: dict[str, str]) -> None:
    done = evertalk("up", environment=environment, EVERTALK_HTTP_PORT="0", EVERTALK_SOFT_BUDGET="2500")
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        (
            "evertalk: EVERTALK_SOFT_BUDGET=2500: EVERTALK_FLUSH_THRESHOLD=4000 is not below "
            "EVERTALK_SOFT_BUDGET=2500 (preset steady); 4001 fits"
        )
    ]
    assert not Path(environment["EVERTALK_DATA_DIR"]).exists()


@needs_all_processes
def test_a_models_file_that_no_process_can_use_ends_it_once(environment: dict[str, str]) -> None:
    file = Path(environment["EVERTALK_DATA_DIR"]).with_name("models.json")
    file.write_text('[{"name": "a"}, {"name": "a"}]')
    done = evertalk("up", environment=environment, EVERTALK_HTTP_PORT="0", EVERTALK_MODELS_FILE=str(file))
    assert done.returncode == 2
    assert f"{file}: 'a' is named twice" in done.stdout
    assert "starting it again" not in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_two_doors_on_one_port_are_refused(environment: dict[str, str]) -> None:
    done = evertalk(
        "up",
        environment=environment,
        TELEGRAM_BOT_TOKEN=TOKEN,
        EVERTALK_TELEGRAM_MODE="webhook",
        EVERTALK_TELEGRAM_WEBHOOK_SECRET="s" * 32,
        EVERTALK_HTTP_PORT="8099",
        EVERTALK_TELEGRAM_PORT="8099",
        EVERTALK_PUBLIC_URL="https://chat.example.org",
    )
    assert done.returncode == 1
    assert "EVERTALK_HTTP_PORT and EVERTALK_TELEGRAM_PORT are both 8099" in done.stdout


def test_port_in_use_is_reported_before_anything_starts(environment: dict[str, str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = evertalk("up", environment=environment, EVERTALK_HTTP_PORT=port)
    assert done.returncode == 1
    assert f"port {port} on 127.0.0.1 cannot be used" in done.stdout
    assert "EVERTALK_HTTP_PORT" in done.stdout


async def test_full_disk_is_reported_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("shared.cli.up.shutil.disk_usage", lambda _: SimpleNamespace(free=12 * 10**6))
    assert await up(load_settings(data_dir=tmp_path, http_port=0)) == 1
    said = capsys.readouterr().out.splitlines()
    assert said == [
        f"Evertalk cannot start: the disk of {tmp_path} is full: 12 MB are free, and 100 MB are needed",
        "  Make room, or set EVERTALK_DATA_DIR to a folder on another disk.",
    ]


def test_invalid_bot_is_reported_before_anything_starts(environment: dict[str, str]) -> None:
    file = Path(environment["EVERTALK_DATA_DIR"]).with_name("bots.json")
    file.write_text('[{"token_env": "NOWHERE_TOKEN"}]')
    done = evertalk("up", environment=environment, EVERTALK_TELEGRAM_BOTS_FILE=str(file))
    assert done.returncode == 2
    assert f"EVERTALK_TELEGRAM_BOTS_FILE={file}: entry 1: token_env: NOWHERE_TOKEN is set" in done.stdout


def test_the_webhooks_port_is_looked_at_too(environment: dict[str, str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = evertalk(
            "up",
            environment=environment,
            EVERTALK_HTTP_PORT="0",
            TELEGRAM_BOT_TOKEN=TOKEN,
            EVERTALK_TELEGRAM_MODE="webhook",
            EVERTALK_TELEGRAM_WEBHOOK_SECRET="s" * 32,
            EVERTALK_TELEGRAM_PORT=str(taken.getsockname()[1]),
            EVERTALK_PUBLIC_URL="https://chat.example.org",
        )
    assert done.returncode == 1
    assert "set EVERTALK_TELEGRAM_PORT to another number" in done.stdout


def test_pairing_works_without_a_running_evertalk(environment: dict[str, str]) -> None:
    done = evertalk("pairing", "approve", "NONSENSE", environment=environment)
    assert done.returncode == 1
    assert "No request with the code NONSENSE is waiting." in done.stdout
    assert evertalk("pairing", "lits", environment=environment).returncode == 2


def test_a_second_up_on_the_same_folder_names_the_first(environment: dict[str, str]) -> None:
    folder = Path(environment["EVERTALK_DATA_DIR"])
    folder.mkdir()
    with FolderLock(folder / "up.lock") as held:
        held.write_note("http://127.0.0.1:8080")
        done = evertalk("up", environment=environment, EVERTALK_HTTP_PORT="0")
    assert done.returncode == 1
    assert "already runs here: http://127.0.0.1:8080" in done.stdout


def test_unreachable_server_is_reported_in_one_line(environment: dict[str, str]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nowhere = f"127.0.0.1:{free.getsockname()[1]}"
        done = evertalk(
            "up",
            environment=environment,
            EVERTALK_HTTP_PORT="0",
            EVERTALK_SECRET_KEY="k" * 40,
            DATABASE_URL=f"postgresql://someone:hunter2@{nowhere}/x",
            REDIS_URL=f"redis://{nowhere}",
        )
    assert done.returncode == 1
    assert f"PostgreSQL at {nowhere}/x cannot be used" in done.stdout
    assert "hunter2" not in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_doctor_finds_a_misspelled_setting(environment: dict[str, str]) -> None:
    done = evertalk("doctor", environment=environment, EVERTALK_HTTP_PORT="0", EVERTALK_HTPP_PORT="1")
    assert "EVERTALK_HTPP_PORT is not a setting" in done.stdout
    assert "Did you mean EVERTALK_HTTP_PORT?" in done.stdout
    assert "PostgreSQL 18" in done.stdout


def _read_until(process: subprocess.Popen[str], words: str) -> str:
    """The next line with these words; the process is ended when it says nothing for too long."""
    assert process.stdout is not None
    impatience = threading.Timer(PATIENCE_SECONDS, process.terminate)
    impatience.start()
    line = next((line for line in process.stdout if words in line), "")
    impatience.cancel()
    return line


@needs_all_processes
def test_up_prints_pages_that_open_and_stops_on_ctrl_c(
    environment: dict[str, str], stopped: list[subprocess.Popen[str]]
) -> None:
    process, lines = start_up(environment)
    stopped.append(process)
    text = "\n".join(lines)
    chat = re.search(r"Chat +(\S+)", text)
    assert chat is not None, text
    with urllib.request.urlopen(chat[1], timeout=10) as page:
        assert page.status == 200
    assert re.search(r"Dashboard +\S+/dashboard/login\?token=\S+", text)
    assert "the built-in demo" in text
    assert "$5.00 a day" in text
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0
    folder = Path(environment["EVERTALK_DATA_DIR"])
    assert not (folder / "servers" / "pg" / "postmaster.pid").exists()
    assert not list(folder.glob("*.pid"))


async def read_to_its_end(socket: aiohttp.ClientWebSocketResponse) -> int | None:
    async for _ in socket:
        pass
    return socket.close_code


@needs_all_processes
async def test_up_stops_with_open_streams_and_kills_no_process(
    environment: dict[str, str], stopped: list[subprocess.Popen[str]]
) -> None:
    process, lines = await asyncio.to_thread(start_up, environment)
    stopped.append(process)
    login = re.search(r"(http\S+)/dashboard/login\?token=(\S+)", "\n".join(lines))
    assert login is not None, lines
    url, hello = login[1], {"t": "hello", "v": 1, "site": "default", "last_seq": 0}
    own = {"Origin": url, "Sec-Fetch-Site": "same-origin"}
    jar, patience = aiohttp.CookieJar(unsafe=True), aiohttp.ClientTimeout(total=60)
    async with aiohttp.ClientSession(headers=own, cookie_jar=jar, timeout=patience) as http:
        form = {"token": login[2]}
        async with http.post(f"{url}/dashboard/login", data=form, allow_redirects=False) as entered:
            assert entered.status == 303
        async with http.post(f"{url}/api/v1/stream", json=hello) as response:
            ticket = (await response.json())["ticket"]
        async with (
            http.get(f"{url}/api/v1/live") as live,
            http.get(f"{url}/api/v1/stream", params={"ticket": ticket}) as stream,
            http.ws_connect(f"{url}/ws") as socket,
        ):
            await socket.send_json(hello)
            assert (await socket.receive_json())["t"] == "welcome"
            assert b"hello" in await live.content.readline()
            assert await stream.content.readline()
            ends = asyncio.gather(stream.content.read(), live.content.read(), read_to_its_end(socket))
            process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(process.wait, 60) == 0
            async with asyncio.timeout(20):
                last_words, _, close_code = await ends
    assert b'"bye"' in last_words
    assert close_code == 1012
    assert process.stdout is not None
    assert "killed" not in process.stdout.read()


def given_at_start(environment: dict[str, str], name: str) -> str:
    folder = Path(environment["EVERTALK_DATA_DIR"])
    pid = int((folder / f"{name}.pid").read_text())
    return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").replace("\0", "\n")


@pytest.mark.control("S37")
async def test_up_starts_the_bot_and_each_process_has_own_secrets(
    environment: dict[str, str], stopped: list[subprocess.Popen[str]]
) -> None:
    async with running_bot_api() as fake:
        file = Path(environment["EVERTALK_DATA_DIR"]).with_name("env")
        file.write_text(f"TELEGRAM_BOT_TOKEN={TOKEN}\nEVERTALK_METRICS_TOKEN={'m' * 40}\nMY_KEY=mine\n")
        more = {"EVERTALK_SECRET_KEY": "k" * 40, "EVERTALK_ALERT_SMTP_URL": "smtp://u:p@127.0.0.1:9"}
        mail = {"EVERTALK_ALERT_EMAIL_FROM": "a@example.org", "EVERTALK_ALERT_EMAIL_TO": "b@example.org"}
        told = {
            **environment, **more, **mail, "EVERTALK_ENV_FILE": str(file),
            "EVERTALK_TELEGRAM_API_URL": fake.base_url,
        }  # fmt: skip
        all_three = {"web", "bot", "worker"}
        secrets = {
            TOKEN: {"bot"}, "m" * 40: {"web"}, "k" * 40: {"web"}, "smtp://u:p@": {"web", "bot"},
            "MY_KEY=mine": all_three, "DATABASE_URL=": all_three,
        }  # fmt: skip
        process, lines = await asyncio.to_thread(start_up, told)
        stopped.append(process)
        link = rf"@{USERNAME} – https://t\.me/{USERNAME}\?start=\S+"
        if not re.search(link, "\n".join(lines)):
            # On a slow machine the bot is not there when everything else is: then the link comes later.
            assert "has not reached Telegram yet" in "\n".join(lines)
            lines.append(await asyncio.to_thread(_read_until, process, USERNAME))
        assert re.search(link, "\n".join(lines))
        given = {name: given_at_start(environment, name) for name in ("web", "bot", "worker")}
        who = {secret: {name for name, words in given.items() if secret in words} for secret in secrets}
        assert who == secrets
        process.send_signal(signal.SIGINT)
        assert await asyncio.to_thread(process.wait, 60) == 0


def store(environment: dict[str, str], *words: str, secret: str = "") -> float:
    """When it was stored, by `./evertalk settings` beside the running one."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "shared", "settings", *words], env=environment, input=secret,
        capture_output=True, text=True, timeout=60, cwd="/",
    )  # fmt: skip
    assert (done.returncode, "follows within two seconds" in done.stderr) == (0, True), done
    return time.monotonic()


async def test_stored_setting_takes_effect_in_its_processes_within_ten_seconds(
    environment: dict[str, str], stopped: list[subprocess.Popen[str]]
) -> None:
    async with running_bot_api() as fake:
        told = {**environment, "EVERTALK_TELEGRAM_API_URL": fake.base_url, "EVERTALK_MODEL": "offline-demo"}
        process, lines = await asyncio.to_thread(start_up, told)
        stopped.append(process)
        chat = re.search(r"Chat +(\S+)", "\n".join(lines))
        assert chat is not None
        folder = Path(environment["EVERTALK_DATA_DIR"])

        def pids() -> dict[str, str]:
            return {name: (folder / f"{name}.pid").read_text() for name in ("web", "worker")}

        before = pids()
        at = await asyncio.to_thread(store, told, "set", "TELEGRAM_BOT_TOKEN", secret=TOKEN)
        assert "bot take them now" in await asyncio.to_thread(_read_until, process, "Settings were changed")
        assert f"t.me/{USERNAME}" in await asyncio.to_thread(_read_until, process, USERNAME)
        assert time.monotonic() - at < 10 * count_times()
        assert pids() == before
        given = {name: given_at_start(environment, name) for name in ("web", "bot", "worker")}
        assert {name for name, words in given.items() if TOKEN in words} == {"bot"}

        at = await asyncio.to_thread(store, told, "set", "EVERTALK_PRESET", "pantheon")
        assert "web, worker, bot" in await asyncio.to_thread(_read_until, process, "Settings were changed")
        for name in ("web", "worker", "bot"):
            log = folder / "logs" / f"{name}.log"
            while "settings_followed" not in log.read_text():
                assert time.monotonic() - at < 10 * count_times()
                await asyncio.sleep(0.05)
        assert pids() == before, "no process starts again"
        assert await asyncio.to_thread(is_served, chat[1])
        process.send_signal(signal.SIGINT)
        assert await asyncio.to_thread(process.wait, 60) == 0
        again, lines = await asyncio.to_thread(start_up, told)
        stopped.append(again)
        assert USERNAME in "\n".join(lines) or "has not reached Telegram yet" in "\n".join(lines)
        assert "EVERTALK_PRESET=pantheon" in given_at_start(environment, "worker")
        again.send_signal(signal.SIGINT)
        assert await asyncio.to_thread(again.wait, 60) == 0


def is_served(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as page:
            return bool(page.status == 200)
    except OSError:
        return False


@needs_all_processes
@pytest.mark.faults
def test_up_works_again_after_kill_9_of_everything(
    environment: dict[str, str], stopped: list[subprocess.Popen[str]]
) -> None:
    process, _ = start_up(environment)
    stopped.append(process)
    folder = Path(environment["EVERTALK_DATA_DIR"])
    pids = [int(path.read_text().split()[0]) for path in folder.glob("*.pid")]
    pids.append(int((folder / "servers" / "pg" / "postmaster.pid").read_text().split()[0]))
    for pid in [process.pid, *pids]:
        with contextlib.suppress(ProcessLookupError):  # a child may notice first that its parent is gone
            os.kill(pid, signal.SIGKILL)
    process.wait(60)
    again, lines = start_up(environment)
    stopped.append(again)
    assert any("is ready" in line for line in lines), lines
    again.send_signal(signal.SIGTERM)
    assert again.wait(60) == 0


def test_setup_writes_a_private_file_and_keeps_what_it_does_not_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / ".env"
    file.write_text("# mine\nOTHER=1\nEVERTALK_PROFILE=personal\n")
    monkeypatch.setenv("EVERTALK_ENV_FILE", str(file))
    answers = iter(["all", "public", "chat.example.org", "https://chat.example.org/", "a lot", "-1", "2.5"])
    secrets = iter(["sk-ant-key with 'quotes'", ""])
    assert run_setup(ask=lambda _: next(answers), ask_secret=lambda _: next(secrets)) == 0
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.read_text().startswith("# mine\nOTHER=1\nEVERTALK_PROFILE=public\n")
    settings = load_settings()
    assert settings.anthropic_api_key is not None
    assert settings.anthropic_api_key.get_secret_value() == "sk-ant-key with 'quotes'"
    assert settings.public_url == "https://chat.example.org"
    assert f"{settings.cap_total_per_day_usd}" == "2.50"
    said = capsys.readouterr().out
    assert "Please answer personal or public." in said
    assert "An address begins with https:// (or http://), such as https://chat.example.org." in said
    assert "Please write an amount with a dot, such as 5 or 2.50." in said
    assert "The amount must be 0 or more" in said


async def test_setup_takes_the_key_of_any_provider(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    aiohttp_server: AiohttpServer,
) -> None:
    """The key is tried, and what its server has is offered; another provider makes room."""
    file = tmp_path / ".env"
    file.write_text("ANTHROPIC_API_KEY=old\nEVERTALK_MODEL=claude-opus-5\n")
    monkeypatch.setenv("EVERTALK_ENV_FILE", str(file))

    async def models(request: web.Request) -> web.Response:
        if request.headers["Authorization"] != "Bearer right":
            return web.json_response({}, status=401)
        return web.json_response({"data": [{"id": "small"}, {"id": "large"}, {"id": "embed-1"}]})

    app = web.Application()
    app.router.add_get("/v1/models", models)
    server = await aiohttp_server(app)
    url = str(server.make_url("/v1"))
    told = iter([url, "ftp://x", url, "none-such", "large"])
    secret = iter(["wrong", "right", ""])
    done = await asyncio.to_thread(run_setup, ask=lambda _: next(told, ""), ask_secret=lambda _: next(secret))
    assert done == 0
    said = capsys.readouterr().out
    assert f"No: {url} knows no such key." in said
    assert "An address begins with https://" in said
    assert "It has small, large." in said
    assert "It has no none-such." in said
    settings = load_settings()
    assert settings.openai_api_key is not None
    assert (settings.openai_api_key.get_secret_value(), settings.openai_base_url) == ("right", url)
    assert (settings.anthropic_api_key, settings.model) == (None, "large")
    # And back: a key of Anthropic's names its owner, and the other's model goes with it.
    keys = iter(["sk-ant-1", ""])
    assert run_setup(ask=lambda _: "", ask_secret=lambda _: next(keys)) == 0
    settings = load_settings()
    assert (settings.openai_api_key, settings.openai_base_url, settings.model) == (None, None, "")


@pytest.mark.parametrize(
    ("wire", "expected"), [("messages", "ANTHROPIC_BASE_URL"), ("openai", "OPENAI_BASE_URL")]
)
def test_setup_offers_what_runs_on_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wire: Wire, expected: str
) -> None:
    async def found() -> tuple[LocalServer, ...]:
        url = "http://127.0.0.1:1234"
        return (
            LocalServer(name="One", base_url="http://127.0.0.1:9", models=("a",)),
            LocalServer(name="Two", base_url=url, wire=wire, models=("b", "c")),
        )

    asked: list[str] = []

    def ask(question: str) -> str:
        asked.append(question)
        return "n" if "One runs" in question else ""

    file = tmp_path / ".env"
    monkeypatch.setenv("EVERTALK_ENV_FILE", str(file))
    monkeypatch.setattr("shared.cli.setup.find_local_servers", found)
    assert run_setup(ask=ask, ask_secret=lambda _: "") == 0
    assert asked[:2] == [
        "One runs on this machine with a. Use a? [Y/n] ",
        "Two runs on this machine with b and 1 more. Use b? [Y/n] ",
    ]
    assert {f"{expected}=http://127.0.0.1:1234", "EVERTALK_MODEL=b"} <= set(file.read_text().split())


async def setup_with_bot(
    file: Path, monkeypatch: pytest.MonkeyPatch, *, tokens: list[str], answers: list[str], api_url: str
) -> int:
    """The questions before those about Telegram are answered with Enter."""
    monkeypatch.setenv("EVERTALK_ENV_FILE", str(file))
    monkeypatch.setenv("EVERTALK_TELEGRAM_API_URL", api_url)
    told, secret = iter(["", "", "", *answers]), iter(["sk-ant-provider-key", *tokens])
    return await asyncio.to_thread(run_setup, ask=lambda _: next(told, ""), ask_secret=lambda _: next(secret))


async def test_setup_checks_the_bots_token_with_telegram(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / ".env"
    tokens = ["no token", "700001:" + "w" * 35, TOKEN]
    async with running_bot_api() as fake:
        done = await setup_with_bot(
            file, monkeypatch, tokens=tokens, answers=["allowlist", "@ada", "42, -100"], api_url=fake.base_url
        )
    assert done == 0
    said = capsys.readouterr().out
    assert "@BotFather" in said
    assert "It is not a bot's token" in said
    assert "No: Telegram does not know a bot with this token." in said
    assert f"This is @{USERNAME} (" in said
    assert "wwww" not in said
    assert "'@ada' is not the number of a person or a group" in said
    settings = load_settings()
    assert settings.telegram_bot_token is not None
    assert settings.telegram_bot_token.get_secret_value() == TOKEN
    assert (settings.telegram_access, settings.telegram_allowed) == ("allowlist", (42, -100))


async def test_setup_keeps_a_token_that_cannot_be_checked_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / ".env"
    done = await setup_with_bot(
        file, monkeypatch, tokens=[TOKEN], answers=["open"], api_url="http://127.0.0.1:1"
    )
    assert done == 0
    said = capsys.readouterr().out
    assert "It could not be checked: 127.0.0.1 did not answer" in said
    assert "anyone who finds the bot may then spend your money" in said
    assert TOKEN in file.read_text()
    # Enter keeps it, and `none` takes it away.
    await setup_with_bot(file, monkeypatch, tokens=[""], answers=["pairing"], api_url="http://127.0.0.1:1")
    assert TOKEN in file.read_text()
    await setup_with_bot(file, monkeypatch, tokens=["none"], answers=[], api_url="http://127.0.0.1:1")
    assert "TELEGRAM_BOT_TOKEN" not in file.read_text()


def test_setup_that_is_left_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(_: str) -> str:
        raise EOFError

    monkeypatch.setenv("EVERTALK_ENV_FILE", str(tmp_path / ".env"))
    assert run_setup(ask=leave, ask_secret=leave) == 1
    assert not (tmp_path / ".env").exists()


def test_an_answer_of_nothing_removes_the_line() -> None:
    assert merge_settings("A=1\nB=2\n", {"A": "", "B": "3"}) == "B=3\n"
