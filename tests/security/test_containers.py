"""What docker-compose.yml gives its containers: no rights, no doors, no default passwords, bounds."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from shared.adapters.embedded.binaries import find_binaries
from tests.places import short_folder

ROOT = Path(__file__).resolve().parent.parent.parent
TEXT = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
WHOLE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = WHOLE["services"]
DATA = ("postgres", "valkey")
PROXY = "caddy"
"""Its image's folder of certificates belongs to root, who may do nothing here but take the two ports."""
OURS = sorted(set(SERVICES) - {*DATA, PROXY})


@pytest.mark.control("S44")
@pytest.mark.parametrize("name", sorted(SERVICES))
def test_a_container_has_no_rights_and_bounds(name: str) -> None:
    service = SERVICES[name]
    if name == PROXY:
        assert service["cap_add"] == ["NET_BIND_SERVICE"]
    else:
        assert int(str(service["user"]).partition(":")[0]) > 0, "not root"
        assert "cap_add" not in service
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not {"privileged", "devices", "network_mode", "pid", "ipc", "userns_mode"} & set(service)
    assert service["mem_limit"]
    assert service["cpus"]
    assert 0 < service["pids_limit"] <= 512
    mounted = [str(volume) for volume in service.get("volumes", ())]
    assert not [volume for volume in mounted if volume.startswith((".", "/", "~")) or "docker.sock" in volume]


@pytest.mark.control("S38", "S44")
def test_the_data_servers_have_no_way_out_and_nobody_comes_in() -> None:
    assert WHOLE["networks"]["inside"] == {"internal": True}
    for name in DATA:
        assert SERVICES[name]["networks"] == ["inside"]
        assert "ports" not in SERVICES[name]


@pytest.mark.control("S44")
def test_one_door_is_open_and_to_this_machine_only() -> None:
    doors = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert all(
        str(door).startswith("127.0.0.1:") or "443" in str(door) or "80:" in str(door) for door in doors
    )
    assert SERVICES["web"]["ports"] == ["127.0.0.1:8080:8080"]
    assert "expose" not in TEXT


@pytest.mark.control("S38", "S44")
def test_no_password_has_a_default() -> None:
    used = set(re.findall(r"\$\{([A-Z_]+)(:\?[^}]+)?", TEXT))
    assert {name for name, _ in used} >= {"POSTGRES_PASSWORD", "VALKEY_PASSWORD", "EVERTALK_SECRET_KEY"}
    assert all(refusal for name, refusal in used if name.endswith(("PASSWORD", "KEY"))), (
        "without it nothing starts"
    )
    assert "POSTGRES_HOST_AUTH_METHOD" not in TEXT
    for service in SERVICES.values():
        words = " ".join(map(str, service.get("command", ())))
        assert "PASSWORD" not in words, "a list of processes would show it"


@pytest.mark.control("S44")
def test_who_is_asked_says_whether_it_is_well_and_others_wait_for_that() -> None:
    assert all("healthcheck" in SERVICES[name] for name in (*DATA, "web", "worker", "bot"))
    for name in ("worker", "bot"):
        assert SERVICES[name]["healthcheck"]["test"] == ["CMD", "python", "-m", "shared.alive"]
        assert SERVICES[name]["environment"]["EVERTALK_PROCESS_FILE"].startswith("/tmp/"), "its own memory"
    for name in ("web", "worker", "bot"):
        waits = SERVICES[name]["depends_on"]
        assert waits["valkey"]["condition"] == "service_healthy"
        assert waits["migrate"]["condition"] == "service_completed_successfully"


@pytest.mark.control("S43", "S44")
def test_an_image_is_built_from_the_lock_and_holds_nothing_of_the_machine_around() -> None:
    recipe = WHOLE["x-evertalk"]["build"]["dockerfile_inline"]
    assert "--require-hashes -r requirements.lock" in recipe
    assert "USER 10001:10001" in recipe
    kept_out = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert kept_out[0] == "*", "all that is not named stays outside, .env first"
    assert not [line for line in kept_out if line.startswith("!") and (".env" in line or line == "!.")]


@pytest.mark.control("S38")
async def test_the_way_the_password_is_given_works() -> None:
    """The command of the compose file, by the Valkey that is installed here."""
    folder = short_folder("evc-")
    command = str(SERVICES["valkey"]["command"][-1]).replace("$$", "$")
    command = command.replace("valkey-server", str(find_binaries().valkey_server))
    line = command.replace("--maxmemory ", f"--port 0 --unixsocket {folder}/s --dir {folder} --maxmemory ")
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", line, env={"REDISCLI_AUTH": "right"}, stdout=asyncio.subprocess.DEVNULL
    )
    try:
        assert await _says(folder, "PING") == b"-NOAUTH Authentication required.\r\n"
        assert await _says(folder, "AUTH right") == b"+OK\r\n"
        assert (await _says(folder, "AUTH wrong")).startswith(b"-WRONGPASS")
    finally:
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 60) == 0, "told to stop, it writes what it has"
        shutil.rmtree(folder, ignore_errors=True)


async def _says(folder: Path, line: str) -> bytes:
    async with asyncio.timeout(60):
        while not (folder / "s").exists():
            await asyncio.sleep(0.02)
        while True:
            with contextlib.suppress(ConnectionRefusedError):  # it is there before anybody listens
                reader, writer = await asyncio.open_unix_connection(folder / "s")
                break
            await asyncio.sleep(0.02)
        writer.write(f"{line}\r\n".encode())
        answer = await reader.readline()
        writer.close()
        return answer
