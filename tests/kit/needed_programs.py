"""The programs that tests need on this machine, and how to install them; reported before a run."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest

_CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
_HEADLESS_SHELL = "chromium-headless-shell"
STARTERS = frozenset({"servers", "running_provider", "browser", "whole_browser"})
"""Fixtures that start PostgreSQL, Valkey, a fake provider or Chromium."""
NEEDY = pytest.StashKey[list[pytest.Item]]()
"""Tests that `--unit` left out of this run."""


def needs_programs(test: pytest.Item) -> bool:
    """Return whether a test asks for a server or a browser, itself or through another fixture."""
    return not STARTERS.isdisjoint(getattr(test, "fixturenames", ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Needed:
    """A program without which certain tests are skipped; in CI, where they must run, they fail."""

    what: str
    tests: str
    get: str
    is_here: Callable[[], bool]


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() in ("1", "true", "yes")


def find_chromium() -> str | None:
    return next(filter(None, map(shutil.which, _CHROMIUM)), None)


def chromium(*, whole: bool = False) -> str:
    """Return the path of Chromium; without one, skip the test, or fail it in CI.

    The headless shell opens pages with a third less load; `whole` asks for a complete Chromium, which has a
    microphone.
    """
    shell = None if whole else shutil.which(_HEADLESS_SHELL)
    return (
        shell or find_chromium() or refuse("no Chromium on this machine (Debian: apt-get install chromium)")
    )


def refuse(reason: str) -> NoReturn:
    """Skip the running test with this reason; in CI, fail it."""
    if in_ci():
        pytest.fail(reason)
    pytest.skip(reason)


def find_program(name: str) -> str | None:
    """Return the path of a program, also from `/usr/sbin`, where servers are installed.

    None if it is missing.
    """
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")


def postgres_folders() -> list[Path]:
    """Return the folders of the PostgreSQL programs from Debian's packages, newest first.

    Tests of TLS need them, since the embedded PostgreSQL has none.
    """
    folders = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/postgres")]
    return sorted(folders, key=lambda folder: int(folder.parent.name), reverse=True)


NEEDED = (
    Needed(
        what="Chromium",
        tests="the tests in a browser (tests/browser)",
        get="Debian: apt-get install chromium",
        is_here=lambda: find_chromium() is not None,
    ),
    Needed(
        what="PostgreSQL with TLS, PgBouncer and HAProxy",
        tests="the tests with servers of one's own (tests/integration/external_servers)",
        get="Debian: apt-get install postgresql pgbouncer haproxy",
        is_here=lambda: bool(postgres_folders()) and all(map(find_program, ("pgbouncer", "haproxy"))),
    ),
    Needed(
        what="npm",
        tests="the test that packs the widget again",
        get="Debian: apt-get install nodejs npm",
        is_here=lambda: shutil.which("npm") is not None,
    ),
    Needed(
        what="tdjson, Telegram's own parser",
        tests="the tests that ask it (tests/unit/bot/markup)",
        get="it has wheels for Linux on x86-64 and for macOS on arm64 only",
        is_here=lambda: importlib.util.find_spec("tdjson") is not None,
    ),
    Needed(
        what="PostgreSQL 15",
        tests="the test of an upgrade from it",
        get="Debian: apt-get install postgresql-15",
        is_here=lambda: any(folder.parent.name == "15" for folder in postgres_folders()),
    ),
    Needed(
        what="systemd-analyze",
        tests="the test that it accepts our units",
        get="Debian: apt-get install systemd",
        is_here=lambda: shutil.which("systemd-analyze") is not None,
    ),
    Needed(
        what="the rights of root",
        tests="the tests of accounts, of a full disk and of folders of others",
        get="run them as root in a container",
        is_here=lambda: os.geteuid() == 0,
    ),
)


def list_skipped(needed: Sequence[Needed] = NEEDED) -> Iterator[str]:
    """Yield a line for each program that is missing here."""
    fate = "fail" if in_ci() else "are skipped"
    for each in needed:
        if not each.is_here():
            yield f"{each.what} is missing: {each.tests} {fate} ({each.get})"
