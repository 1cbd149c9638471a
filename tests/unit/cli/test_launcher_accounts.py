"""The launcher names the account that made .venv first, where another account cannot use it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.temp_folders import short_folder

ROOT = Path(__file__).resolve().parents[3]
NOBODY = 65_534
SYSTEM_PYTHON = next(
    (path for path in map(Path, ("/usr/bin/python3", "/usr/local/bin/python3")) if path.exists()), None
)

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or SYSTEM_PYTHON is None, reason="only root makes files of two accounts"
)


@pytest.fixture
def checkout() -> Iterator[Path]:
    """A checkout that belongs to the account that runs the launcher, with a .venv that root made."""
    folder = short_folder("evl-")
    folder.chmod(0o755)
    for name in ("evertalk", "requirements.lock"):
        shutil.copy(ROOT / name, folder / name)
    assert SYSTEM_PYTHON is not None
    (folder / ".venv" / "bin").mkdir(parents=True)
    (folder / ".venv" / "bin" / "python").symlink_to(SYSTEM_PYTHON)
    os.chown(folder, NOBODY, NOBODY)
    yield folder
    shutil.rmtree(folder)


def run_as_nobody(checkout: Path) -> list[str]:
    assert SYSTEM_PYTHON is not None
    done = subprocess.run(
        [SYSTEM_PYTHON, checkout / "evertalk", "version"], user=NOBODY, group=NOBODY, extra_groups=[],
        capture_output=True, text=True, timeout=60, cwd="/",
        env={"PATH": "/usr/bin:/bin", "PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": "http://127.0.0.1:1/simple"},
    )  # fmt: skip
    assert done.returncode == 2, done
    return done.stderr.splitlines()


def make_refusal(checkout: Path, reason: str) -> list[str]:
    venv = checkout / ".venv"
    advice = f"Run ./evertalk as root, or remove that folder (sudo rm -r {venv}) and run ./evertalk again."
    return [f"evertalk: {venv} was made by root, and you are nobody: {reason}. {advice}"]


def test_launcher_names_the_owner_when_venv_is_closed(checkout: Path) -> None:
    (checkout / ".venv").chmod(0o700)
    assert run_as_nobody(checkout) == make_refusal(checkout, "you may not read it")


def test_launcher_names_the_owner_when_its_python_is_closed(checkout: Path) -> None:
    home = checkout / "home"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "python3").symlink_to(SYSTEM_PYTHON or "")
    home.chmod(0o700)
    (checkout / ".venv" / "bin" / "python").unlink()
    (checkout / ".venv" / "bin" / "python").symlink_to(home / "bin" / "python3")
    reason = f"its Python {home}/bin/python3 is in {home}, which is closed to you"
    assert run_as_nobody(checkout) == make_refusal(checkout, reason)


def test_launcher_names_the_owner_when_packages_changed(checkout: Path) -> None:
    reason = f"packages have to be installed, and you may not write to {checkout}/.venv"
    assert run_as_nobody(checkout) == make_refusal(checkout, reason)


def test_launcher_names_the_owner_of_a_part_of_venv(checkout: Path) -> None:
    """Root ran the launcher once in a checkout of another account."""
    parts = checkout / ".venv" / "lib" / "python3.11" / "site-packages"
    parts.mkdir(parents=True)
    for path in (checkout / ".venv", checkout / ".venv" / "bin"):
        os.chown(path, NOBODY, NOBODY)
    reason = f"packages have to be installed, and you may not write to {parts}"
    assert run_as_nobody(checkout) == make_refusal(checkout, reason)


def test_launcher_names_the_owner_when_venv_cannot_be_made_again(checkout: Path) -> None:
    python = checkout / ".venv" / "bin" / "python"
    python.unlink()
    python.write_text("#!/bin/false\n")
    python.chmod(0o755)
    reason = "it has to be made again, since its Python does not run, and you may not write to"
    assert run_as_nobody(checkout) == make_refusal(checkout, f"{reason} {checkout}/.venv")


def test_launcher_keeps_its_lines_for_the_account_that_made_venv(checkout: Path) -> None:
    for path in (checkout / ".venv", checkout / ".venv" / "bin"):
        os.chown(path, NOBODY, NOBODY)
    assert not any("was made by" in line for line in run_as_nobody(checkout))
