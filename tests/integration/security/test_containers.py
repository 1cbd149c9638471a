"""What docker-compose.yml gives its containers: no rights, no doors, no default passwords, bounds."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from shared.adapters.embedded.binaries import find_binaries
from shared.config.settings import is_secret, list_setting_names, load_settings
from shared.supervision.process_secrets import PROCESSES_BY_SETTING
from tests.kit.temp_folders import short_folder

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
WHOLE: dict[str, Any] = yaml.safe_load(TEXT)
RECIPE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
SERVICES: dict[str, dict[str, Any]] = WHOLE["services"]
DATA = ("postgres", "valkey")
PROXY = "caddy"
"""Its image's folder of certificates belongs to root, who may do nothing here but take the two ports."""
ROLES = "roles"
"""Asks PostgreSQL as its superuser, by psql, and ends."""
ENCODER = "meaning"
"""Runs a foreign package that says what texts mean."""
OURS = sorted(set(SERVICES) - {*DATA, PROXY, ROLES, ENCODER})
SECRETS: dict[str, dict[str, str]] = WHOLE["secrets"]


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
def test_data_servers_have_no_network_in_or_out() -> None:
    assert WHOLE["networks"]["inside"] == {"internal": True}
    for name in DATA:
        assert SERVICES[name]["networks"] == ["inside"]
        assert "ports" not in SERVICES[name]


@pytest.mark.control("S44")
def test_encoder_has_its_socket_and_nothing_else() -> None:
    service = SERVICES[ENCODER]
    assert service["volumes"] == [f"{ENCODER}:/run/{ENCODER}"]
    assert service["build"]["target"] == ENCODER
    assert not {"secrets", "environment", "ports", "env_file", "command"} & set(service)
    [alone] = service["networks"]
    assert WHOLE["networks"][alone] == {"internal": True}
    assert [name for name, one in SERVICES.items() if alone in one.get("networks", ())] == [ENCODER]
    assert all(f"{ENCODER}:/run/{ENCODER}" in SERVICES[name]["volumes"] for name in OURS)
    stage = RECIPE.partition(f" AS {ENCODER}\n")[2].partition("\nFROM")[0]
    assert f'"/run/{ENCODER}/{ENCODER}.sock"' in stage
    assert "COPY --from=build /app/shared" in stage


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
    used = set(re.findall(r"\$\{([A-Z_]+)", TEXT))
    assert not {name for name in used if name.endswith(("PASSWORD", "KEY", "URL"))}, "they come from files"
    assert all(set(secret) == {"file"} for secret in SECRETS.values()), (
        "Compose can put nothing else into a container that is read only"
    )
    assert "configs" not in WHOLE, "as above"
    assert "POSTGRES_HOST_AUTH_METHOD" not in TEXT
    for service in SERVICES.values():
        words = " ".join(map(str, service.get("command", ())))
        assert not re.search(r"\$\{?\w*(PASSWORD|KEY)", words), "a list of processes would show it"


FIXED = {"data_dir", "http_host", "http_port", "process_file"}
"""What the file itself says."""
NOT_HERE = {
    "servers_account": "root starts no servers in a container",
    "crash_point": "for tests",
    "telegram_mode": "the bot asks Telegram, so that it needs no port",
    "telegram_port": "as above",
    "telegram_webhook_secret": "as above",
    "backup_dir": "beside the other data, in their volume",
}
USES: dict[str, set[str]] = {
    "migrate": {"database_url"},
    "backup": {"database_url", "secret_key"},
    **{
        # Alone, each opens the stored settings that it works with.
        name: {field for field, users in PROCESSES_BY_SETTING.items() if name in users} | {"secret_key"}
        for name in ("web", "bot", "worker")
    },
}
FROM_FILES = {"database_url", "redis_url", "secret_key"}
"""Secrets that nothing works without: each is a file, which the container mounts."""
HOLDERS = {
    "postgres_password": {"postgres", "roles"},
    "owner_url": {"roles", "migrate"},
    "database_url": {"roles", "web", "worker", "bot", "backup"},
    "valkey_password": {"valkey"},
    "redis_url": {"web", "worker", "bot"},
    "secret_key": {"web", "worker", "bot", "backup"},
}


def given(name: str) -> dict[str, Any]:
    """A name without a value is filled from .env."""
    return dict(SERVICES[name]["environment"])


@pytest.mark.control("S37", "S44")
@pytest.mark.parametrize("name", OURS)
def test_a_process_is_given_what_it_works_with_and_nothing_else(name: str) -> None:
    """The same secrets as under `up`, every plain setting, and no whole file."""
    assert "env_file" not in SERVICES[name]
    names = list_setting_names()
    secrets = {
        f"{names[field]}_FILE" if field in FROM_FILES else names[field]
        for field in USES[name] - set(NOT_HERE)
    }
    plain = {names[field] for field in names if not is_secret(field) and field not in {*FIXED, *NOT_HERE}}
    fixed = {"EVERTALK_DATA_DIR", "EVERTALK_PROCESS_FILE"}
    fixed |= {"EVERTALK_HTTP_HOST", "EVERTALK_HTTP_PORT"} if name == "web" else set()
    assert set(given(name)) == secrets | plain | fixed
    filled = {setting for setting, value in given(name).items() if value is None}
    required = {f"{names[field]}_FILE" for field in FROM_FILES}
    assert filled == (secrets | plain) - required - {"EVERTALK_LOG_FORMAT"}


@pytest.mark.control("S37", "S44")
@pytest.mark.parametrize("secret", sorted(SECRETS))
def test_secret_is_mounted_only_where_it_is_used(secret: str) -> None:
    mounting = {name for name, service in SERVICES.items() if secret in service.get("secrets", ())}
    naming = {name for name, service in SERVICES.items() if f"/run/secrets/{secret}" in str(service)}
    assert mounting == HOLDERS[secret]
    assert naming == mounting or secret in ("owner_url", "database_url"), "roles asks by a function"


@pytest.mark.control("S38", "S44")
def test_no_process_of_ours_connects_as_the_superuser() -> None:
    superuser = SERVICES["postgres"]["environment"]["POSTGRES_USER"]
    assert f"--username={superuser}" in str(SERVICES[ROLES]["command"])
    holders = {
        name for name, service in SERVICES.items() if "postgres_password" in service.get("secrets", ())
    }
    assert holders == {"postgres", ROLES}
    for name in OURS:
        assert "DATABASE_URL" not in given(name)
        expected = "owner_url" if name == "migrate" else "database_url"
        assert given(name)["DATABASE_URL_FILE"] == f"/run/secrets/{expected}"
    assert "evertalk_migrate:" in TEXT.split("> owner_url")[0].splitlines()[-1]
    assert "evertalk_app:" in TEXT.split("> database_url")[0].splitlines()[-1]


def as_compose_would(value: str) -> str:
    """A variable's default, else something that is long enough for a secret."""
    return re.sub(r"\$\{\w+(?::-([^}]*)|:\?[^}]*)\}", lambda found: found[1] or "k" * 40, value)


def test_what_a_process_is_given_can_be_started_with(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nobody is refused for a secret that only another one has."""
    for secret in SECRETS:
        (tmp_path / secret).write_text("postgresql://a:b@c/d" if secret.endswith("_url") else "k" * 40)
    (tmp_path / "redis_url").write_text("redis://:b@c/0")
    filled = {
        "TELEGRAM_BOT_TOKEN": "123456789:" + "x" * 35,
        "EVERTALK_PUBLIC_URL": "https://chat.example.org",
        "EVERTALK_ALERT_SMTP_URL": "smtp://mail.example.org",
        "EVERTALK_ALERT_EMAIL_FROM": "a@example.org",
        "EVERTALK_ALERT_EMAIL_TO": "b@example.org",
    }
    for name in OURS:
        with monkeypatch.context() as patch:
            for key, value in given(name).items():
                if (said := filled.get(key) if value is None else value) is not None:
                    patch.setenv(key, as_compose_would(str(said)).replace("/run/secrets", str(tmp_path)))
            settings = load_settings()
        assert settings.data_dir == Path("/var/lib/evertalk")
        assert (settings.telegram_bot_token is not None) == (name == "bot")
        assert (settings.alert_smtp_url is not None) == (name in ("web", "bot"))


@pytest.mark.control("S44")
def test_what_must_outlive_a_container_lies_in_a_volume() -> None:
    folder = "/var/lib/evertalk"
    for name in OURS:
        assert SERVICES[name]["volumes"] == [f"data:{folder}", "meaning:/run/meaning"]
        assert given(name)["EVERTALK_DATA_DIR"] == folder
    assert {"data", "postgres", "valkey"} <= set(WHOLE["volumes"])
    recipe = RECIPE
    # A new volume has the owner that its place has in the image.
    assert f"install -d -m 700 -o 10001 -g 10001 {folder}" in recipe
    assert SERVICES["backup"]["command"] == ["python", "-m", "shared.supervision.backup_schedule"]


def test_services_wait_until_the_database_listens_on_the_network() -> None:
    """The image's own server, while it makes its files, answers at a socket only."""
    check = SERVICES["postgres"]["healthcheck"]["test"]
    assert check[:2] == ["CMD", "pg_isready"]
    assert "--host=127.0.0.1" in check
    assert SERVICES[ROLES]["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    assert SERVICES["migrate"]["depends_on"] == {ROLES: {"condition": "service_completed_successfully"}}
    for name in ("web", "worker", "bot", "backup"):
        assert SERVICES[name]["depends_on"]["migrate"] == {"condition": "service_completed_successfully"}


@pytest.mark.control("S43")
def test_images_are_pinned_to_the_versions_that_up_installs() -> None:
    """An operator may hold each by its digest, which only a registry can tell."""
    python = WHOLE["x-evertalk"]["build"]["args"]["PYTHON_IMAGE"]
    named = [SERVICES[name]["image"] for name in (*DATA, PROXY, ROLES)]
    digest = r"@sha256:[0-9a-f]{64}"
    exact = re.compile(rf"\$\{{[A-Z]+_IMAGE:-([a-z/]+):(\d+\.\d+(?:\.\d+)?)(?:-slim)?((?:{digest})?)\}}")
    assert all((found := exact.fullmatch(one)) and found[3] for one in named), named
    assert SERVICES[ROLES]["image"] == SERVICES["postgres"]["image"]
    assert f"ARG PYTHON_IMAGE={python.removeprefix('${PYTHON_IMAGE:-').removesuffix('}')}\n" in RECIPE
    named.append(python)
    versions = {found[1]: found[2] for one in named if (found := exact.fullmatch(one))}
    binaries = find_binaries()
    for program, image in ((binaries.postgres, "postgres"), (binaries.valkey_server, "valkey/valkey")):
        said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=20).stdout
        assert re.search(rf"\b{re.escape(versions[image])}\b", said), (image, said)
    assert versions["python"].startswith("3.13.")


def test_the_compose_that_is_needed_is_said() -> None:
    assert "Docker Compose 2.24 or newer" in TEXT
    assert "Docker Compose 2.24 or newer" in (ROOT / "docs/server.md").read_text(encoding="utf-8")


@pytest.mark.control("S44")
def test_services_have_health_checks_and_others_wait_for_them() -> None:
    assert all("healthcheck" in SERVICES[name] for name in (*DATA, "web", "worker", "bot"))
    for name in ("worker", "bot"):
        assert SERVICES[name]["healthcheck"]["test"] == ["CMD", "python", "-m", "shared.supervision.liveness"]
        assert SERVICES[name]["environment"]["EVERTALK_PROCESS_FILE"].startswith("/tmp/"), "its own memory"
    for name in ("web", "worker", "bot"):
        waits = SERVICES[name]["depends_on"]
        assert waits["valkey"]["condition"] == "service_healthy"
        assert waits["migrate"]["condition"] == "service_completed_successfully"


@pytest.mark.control("S43", "S44")
def test_image_is_built_from_the_lock_without_local_files() -> None:
    recipe = RECIPE
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
    (folder / "valkey_password").write_text("right\n")
    command = command.replace("/run/secrets", str(folder))
    line = command.replace("--maxmemory ", f"--port 0 --unixsocket {folder}/s --dir {folder} --maxmemory ")
    process = await asyncio.create_subprocess_exec("sh", "-c", line, stdout=asyncio.subprocess.DEVNULL)
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
