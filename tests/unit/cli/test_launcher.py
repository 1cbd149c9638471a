"""The launcher: readable by old Pythons, careful with what it fetches, and the locks it installs from."""

from __future__ import annotations

import ast
import functools
import hashlib
import http.server
import importlib.util
import os
import re
import signal
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from contextlib import nullcontext
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from shared import __main__ as command_line

ROOT = Path(__file__).resolve().parents[3]
LAUNCHER = ROOT / "evertalk"
LOCKS = ("requirements.lock", "requirements-test.lock")


@pytest.fixture
def launcher() -> ModuleType:
    loader = SourceFileLoader("evertalk_launcher", str(LAUNCHER))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    try:
        loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = before
    return module


@pytest.fixture
def web_folder(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder, and where it is served on loopback."""
    folder = tmp_path / "index"
    folder.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            pass

    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder))
    )
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join(10)
    server.server_close()


def publish(folder: Path, content: bytes, name: str = "tool-1.whl") -> str:
    (folder / "tool").mkdir()
    (folder / "files").mkdir()
    (folder / "files" / name).write_bytes(content)
    # Relative links are allowed, and some mirrors use them.
    (folder / "tool" / "index.html").write_text(f'<a href="../files/{name}#sha256=0">{name}</a>')
    return hashlib.sha256(content).hexdigest()


def test_old_pythons_can_read_it() -> None:
    ast.parse(LAUNCHER.read_text(), feature_version=(3, 4))


def test_an_old_python_gets_one_line_that_says_what_to_do(
    launcher: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(launcher, "NEWEST_FIRST", ())
    monkeypatch.setattr(launcher.sys, "version_info", (3, 8, 1))
    with pytest.raises(SystemExit) as ended:
        launcher.refuse_old_python(["up"])
    assert ended.value.code == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert "needs Python 3.11 or newer, and this is 3.8" in line
    assert "apt-get install" in line


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_of_test_installs_nothing(
    launcher: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], flag: str
) -> None:
    def prepare(lock: str) -> None:
        raise AssertionError(lock)

    monkeypatch.setattr(launcher, "prepare", prepare)
    launcher.main(["test", flag])
    shown = capsys.readouterr().out
    assert shown.startswith("Usage: ./evertalk test")
    assert "--changed" in shown


def test_help_of_other_commands_is_their_own(launcher: ModuleType) -> None:
    for arguments in (["backup", "--help"], ["test", "tests/unit", "--help"], ["--help"], []):
        assert not launcher.asks_for_test_help(arguments)


def test_full_disk_is_reported_in_one_line(launcher: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher.shutil, "disk_usage", lambda _: SimpleNamespace(free=7 * 10**6))
    with pytest.raises(launcher.CannotInstall, match="7 MB are free, and installing needs 400 MB") as told:
        launcher.refuse_full_disk(launcher.LEAST_FREE_MB["requirements"])
    assert "\n" not in str(told.value)


def test_each_lock_says_how_much_room_it_needs(launcher: ModuleType) -> None:
    assert {path.stem for path in ROOT.glob("requirements*.lock")} == set(launcher.LEAST_FREE_MB)


@pytest.mark.parametrize(
    ("machine", "programs", "refused"),
    [
        (("Darwin", "x86_64"), (), True),
        (("Darwin", "x86_64"), ("cc",), True),
        (("Darwin", "x86_64"), ("cc", "cargo"), False),
        (("Darwin", "arm64"), (), False),
        (("Linux", "x86_64"), (), False),
    ],
)
def test_an_intel_mac_hears_which_compilers_it_needs(
    launcher: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    machine: tuple[str, str],
    programs: tuple[str, ...],
    refused: bool,
) -> None:
    monkeypatch.setattr(launcher.platform, "system", lambda: machine[0])
    monkeypatch.setattr(launcher.platform, "machine", lambda: machine[1])
    monkeypatch.setattr(launcher.shutil, "which", lambda name: name if name in programs else None)
    with pytest.raises(launcher.CannotInstall, match="xcode-select") if refused else nullcontext():
        launcher.refuse_missing_compilers()


def test_the_installer_trusts_what_the_system_trusts(
    launcher: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("UV_SYSTEM_CERTS", raising=False)
    assert launcher.Index("https://mine.example/simple").environment()["UV_SYSTEM_CERTS"] == "true"
    monkeypatch.setenv("UV_SYSTEM_CERTS", "false")
    assert launcher.Index("https://mine.example/simple").environment()["UV_SYSTEM_CERTS"] == "false"


def test_ctrl_c_while_modules_load_says_nothing() -> None:
    command = [sys.executable, "-P", "-X", "importtime", "-m", "shared", "version"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stderr is not None
        assert any(b"argparse" in line for line in process.stderr), "imports are told as they are made"
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    assert b"Traceback" not in out + error


def test_it_takes_the_index_that_pip_is_configured_for(launcher: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "system.conf").write_text(
        "[global]\nindex-url = https://one.example/simple\nextra-index-url =\n  https://two.example\n  file:///x\n"
    )
    (tmp_path / "user.conf").write_text("[install]\nfind_links = /wheels\n[global]\ncert = /ca%2.pem\n")
    files = [tmp_path / "system.conf", tmp_path / "user.conf"]
    index = launcher.Index.configured(environ={}, files=files)
    assert index.main == "https://one.example/simple"
    assert index.extra == ["https://two.example", "file:///x"]
    assert index.find_links == ["/wheels"]
    assert index.cert == "/ca%2.pem"


def test_the_environment_wins_over_files(launcher: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "pip.conf").write_text("[global]\nindex-url = https://one.example/simple\n")
    environment = {"PIP_INDEX_URL": "https://mine.example/simple"}
    index = launcher.Index.configured(environ=environment, files=[tmp_path / "pip.conf"])
    assert index.main == "https://mine.example/simple"


def test_a_broken_configuration_file_is_passed_over(
    launcher: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pip.conf").write_bytes(b"index-url \xff no section")
    monkeypatch.setattr(launcher, "DEFAULT_INDEX", "https://default.example/simple")
    index = launcher.Index.configured(environ={}, files=[tmp_path / "pip.conf"])
    assert index.main == "https://default.example/simple"


def test_a_file_comes_by_a_relative_link(launcher: ModuleType, web_folder: tuple[Path, str]) -> None:
    folder, url = web_folder
    digest = publish(folder, b"the program")
    assert launcher.Index(url).fetch("tool", "tool-1.whl", digest) == b"the program"


def test_a_file_comes_from_a_local_index_when_the_first_has_none(
    launcher: ModuleType, web_folder: tuple[Path, str]
) -> None:
    folder, url = web_folder
    digest = publish(folder, b"the program")
    index = launcher.Index(f"{url}/nothing", extra=[folder.as_uri()])
    assert index.fetch("tool", "tool-1.whl", digest) == b"the program"


@pytest.mark.control("S43")
def test_a_file_with_another_checksum_is_refused(launcher: ModuleType, web_folder: tuple[Path, str]) -> None:
    folder, url = web_folder
    publish(folder, b"something else")
    with pytest.raises(launcher.CannotInstall, match="expected checksum"):
        launcher.Index(url).fetch("tool", "tool-1.whl", "0" * 64)


def test_a_stamp_of_another_lock_does_not_count(
    launcher: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "ROOT", str(tmp_path))
    monkeypatch.setattr(launcher, "STAMP", str(tmp_path / "stamp"))
    for lock in LOCKS:
        (tmp_path / lock).write_text("a==1\n")
    before = launcher.digest_of(str(tmp_path / LOCKS[0]))
    launcher.write_stamp(LOCKS[1], "x")
    assert launcher.read_stamp() == {LOCKS[0]: before, LOCKS[1]: "x"}
    (tmp_path / LOCKS[0]).write_text("a==2\n")
    assert launcher.digest_of(str(tmp_path / LOCKS[0])) != before


def pinned(lock: str) -> dict[str, str]:
    lines = (ROOT / lock).read_text().splitlines()
    return dict(found.groups() for line in lines if (found := re.match(r"([a-z0-9.-]+)==([^ ;\\]+)", line)))  # type: ignore[misc]


@pytest.mark.control("S43")
@pytest.mark.parametrize("lock", [path.name for path in ROOT.glob("requirements*.lock")])
def test_every_line_of_a_lock_has_hashes_and_names_no_host(lock: str) -> None:
    text = (ROOT / lock).read_text()
    entries = re.split(r"\n(?=\S)", text.strip())
    assert all("--hash=sha256:" in entry for entry in entries)
    assert "://" not in text
    assert "index-url" not in text


@pytest.mark.control("S43")
def test_the_test_lock_holds_all_of_the_other_alike() -> None:
    assert pinned("requirements.lock").items() <= pinned("requirements-test.lock").items()


@pytest.mark.control("S43")
def test_the_locks_hold_everything_that_the_project_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for lock, asked in zip(
        LOCKS, (project["dependencies"], project["optional-dependencies"]["test"]), strict=True
    ):
        names = {re.match(r"[a-z0-9-]+", line)[0] for line in asked}  # type: ignore[index]
        assert names <= pinned(lock).keys()


def test_help_tells_all_verbs() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "shared", "--help"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0
    for verb in ("up", "setup", "doctor", "login-link", "migrate", "replay", "psql", "test", "version"):
        assert re.search(rf"^ +{verb}\s", done.stdout, re.MULTILINE)


def test_nothing_heavy_is_imported_for_help_and_migrations() -> None:
    code = (
        "import sys, shared.__main__, shared.cli.up, shared.adapters.postgres.db.migrate; "
        "print({'aiogram', 'anthropic'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "set()", done.stderr


def test_the_small_real_model_is_installed_only_for_its_own_tests(launcher: ModuleType) -> None:
    locks, arguments = launcher.locks_for(["test", "local-model", "-x"])
    assert [Path(lock).name for lock in locks] == ["requirements-test.lock", "requirements-local-model.lock"]
    assert arguments == ["test", "-m", "local_model", "tests/acceptance/local_model", "-x"]
    locks, arguments = launcher.locks_for(["test", "-x"])
    assert [Path(lock).name for lock in locks] == ["requirements-test.lock"]
    assert arguments == ["test", "-x"]


def test_an_extra_is_installed_when_asked_for_and_kept_up_to_date(
    launcher: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "STAMP", str(tmp_path / "stamp"))
    assert launcher.locks_for(["install", "video"])[0] == ["requirements.lock"]
    locks, arguments = launcher.locks_for(["install", "voice"])
    assert locks == ["requirements.lock", "requirements-voice.lock"]
    assert arguments == ["install", "voice"]
    launcher.write_stamp("requirements-voice.lock", "an older one")
    assert launcher.locks_for(["up"])[0] == ["requirements.lock", "requirements-voice.lock"]
    assert launcher.locks_for(["voice"])[0] == ["requirements.lock", "requirements-voice.lock"]


@pytest.mark.control("S43")
@pytest.mark.parametrize("extra", ["meaning", "traces", "voice"])
def test_the_lock_of_an_extra_adds_to_what_everybody_has(launcher: ModuleType, extra: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    everybody, more = pinned("requirements.lock"), pinned(launcher.EXTRAS[extra])
    asked = {line.partition(">")[0] for line in project["optional-dependencies"][extra]}
    assert asked <= more.keys()
    assert not more.keys() & everybody.keys()


def test_installable_extras_are_named(
    capsys: pytest.CaptureFixture[str], launcher: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert set(command_line.EXTRAS) == set(launcher.EXTRAS)
    assert command_line.main(["install"]) == 2
    assert command_line.main(["install", "video"]) == 2
    assert "`install` takes voice, traces and meaning, not 'video'." in capsys.readouterr().err
    monkeypatch.setattr(
        command_line, "EXTRAS", {**command_line.EXTRAS, "voice": ("aiohttp", "set SOMETHING")}
    )
    assert command_line.main(["install", "voice"]) == 0
    assert "voice is installed: set SOMETHING." in capsys.readouterr().out
    monkeypatch.setattr(command_line, "EXTRAS", {**command_line.EXTRAS, "traces": ("no_such.package", "")})
    assert command_line.main(["install", "traces"]) == 1
    assert "./evertalk install traces in a checkout" in capsys.readouterr().err
