"""The Dockerfile without Docker: its sources are there, its steps work, and its command starts everything."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from shared.adapters.embedded.process import die_with_parent
from tests.kit.free_ports import free_port
from tests.kit.temp_folders import short_folder

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "Dockerfile").read_text(encoding="utf-8")
STEPS = [line.partition(" ")[::2] for line in TEXT.splitlines() if line and not line.startswith("#")]
LAST_STAGE = STEPS[max(number for number, (verb, _) in enumerate(STEPS) if verb == "FROM") :]
BUILT = [rest for verb, rest in STEPS if verb == "COPY" and "--from" not in rest]
PATIENCE_SECONDS = 120.0


def list_context() -> list[str]:
    """What `.dockerignore` leaves of the checkout: all is excluded but these."""
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    assert lines[0] == "*"
    return [line[1:] for line in lines if line.startswith("!")]


@pytest.fixture
def image() -> Iterator[Path]:
    """A folder as /app of the image is."""
    folder = short_folder("evi-")
    for name in list_context():
        target = folder / "app" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
        else:
            shutil.copy(ROOT / name, target)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def environment_of_last_stage() -> dict[str, str]:
    words = [word for verb, rest in LAST_STAGE if verb == "ENV" for word in shlex.split(rest)]
    return dict(word.split("=", 1) for word in words)


@pytest.mark.control("S43", "S44")
def test_every_source_of_the_image_exists_and_comes_from_the_lock() -> None:
    assert all((ROOT / name).exists() for name in list_context())
    for sources in BUILT:
        for source in shlex.split(sources)[:-1]:
            assert source == "." or source in list_context(), source
    assert not {"secrets", ".env", ".git", "tests"} & set(list_context())
    hashed = "/venv/bin/pip install --no-cache-dir --no-deps --require-hashes -r "
    installs = [rest for verb, rest in STEPS if verb == "RUN" and "pip" in rest]
    assert installs == [f"{hashed}requirements.lock", f"{hashed}requirements-meaning.lock"]


@pytest.mark.control("S44")
def test_image_runs_as_an_account_without_rights() -> None:
    verbs = [verb for verb, _ in LAST_STAGE]
    assert dict(LAST_STAGE)["USER"] == "10001:10001"
    assert "RUN" not in verbs[verbs.index("USER") :], "nothing is made by root later"
    stages = [rest.partition(" AS ")[2] for verb, rest in STEPS if verb == "FROM"]
    assert stages == ["build", "build-meaning", "meaning", ""], "what only builds stays behind"
    assert environment_of_last_stage()["PYTHONDONTWRITEBYTECODE"] == "1", "the image may be read only"


def test_modules_of_the_image_can_be_compiled_and_imported(image: Path) -> None:
    (compiling,) = [rest for verb, rest in STEPS if verb == "RUN" and "compileall" in rest]
    steps = [
        compiling,
        'python -c "import bot.__main__, web.__main__, worker.__main__"',
        "python -m shared version",
    ]
    for step in steps:
        line = re.sub(r"^python", shlex.quote(sys.executable), step)
        done = subprocess.run(
            ["sh", "-c", line], cwd=image / "app", capture_output=True, text=True, timeout=PATIENCE_SECONDS,
            env={"PATH": os.environ["PATH"], "EVERTALK_ENV_FILE": ""},
        )  # fmt: skip
        assert done.returncode == 0, (step, done.stdout, done.stderr)


async def test_command_of_the_image_starts_everything(image: Path) -> None:
    program, *arguments = json.loads(dict(LAST_STAGE)["CMD"])
    assert program == "python"
    port, told = free_port(), environment_of_last_stage()
    given = {
        **told, "PATH": os.environ["PATH"], "EVERTALK_ENV_FILE": "", "EVERTALK_HTTP_PORT": str(port),
        "EVERTALK_DATA_DIR": str(image / "data"), "EVERTALK_HTTP_HOST": "127.0.0.1",
    }  # fmt: skip
    assert (told["EVERTALK_DATA_DIR"], told["EVERTALK_HTTP_HOST"]) == ("/var/lib/evertalk", "0.0.0.0")
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, cwd=image / "app", env=given, stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL, preexec_fn=die_with_parent(signal.SIGTERM),
    )  # fmt: skip
    try:
        end = time.monotonic() + PATIENCE_SECONDS
        async with aiohttp.ClientSession() as client:
            while not await _is_ready(client, port):
                assert process.returncode is None
                assert time.monotonic() < end
                await asyncio.sleep(0.2)
    finally:
        if process.returncode is None:
            process.terminate()
        code = await asyncio.wait_for(process.wait(), PATIENCE_SECONDS)
    assert code == 0


async def _is_ready(client: aiohttp.ClientSession, port: int) -> bool:
    try:
        async with client.get(f"http://127.0.0.1:{port}/readyz") as response:
            return response.status == 200
    except aiohttp.ClientError:
        return False
