"""The system that a replay plays on: one that is running already, or a temporary one in a new data folder."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from aiohttp import ClientError, ClientSession, ClientTimeout
from pydantic import SecretStr

from shared.adapters.embedded.folders import is_held
from shared.adapters.embedded.process import die_with_parent
from shared.adapters.embedded.servers import are_running, build_urls
from shared.config.settings import ENV_FILE_NAME, Settings, list_setting_names
from shared.core.presets.catalog import preset

ROOT = Path(__file__).resolve().parents[3]
READY_SECONDS = 120.0
STOP_SECONDS = 20.0
PROBE_SECONDS = 3.0
GENEROUS_USD = "1000"
_PRIVATE_SETTINGS = frozenset(
    {
        "data_dir", "http_host", "http_port", "public_url", "database_url", "redis_url", "secret_key",
        "trusted_proxies", "allowed_origins", "profile", "crash_point",
        # A system that only plays must not poll an operator's real bots.
        "telegram_bot_token", "telegram_bots_file", "telegram_api_url", "telegram_mode", "telegram_port",
        "telegram_webhook_secret", "telegram_access", "telegram_allowed",
        "cap_total_per_day_usd", "cap_person_per_day_usd", "cap_session_usd", "cap_visitor_per_day_usd",
    }
)  # fmt: skip


class NoReplayTarget(Exception):
    """There is no system to play on; `advice` says what to do."""

    def __init__(self, message: str, *, advice: str) -> None:
        super().__init__(message)
        self.advice = advice


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayTarget:
    url: str
    database_url: str | None
    """Address of the system's database; None if it is unknown, so that only the screen can be checked."""
    note: str


async def at_url(settings: Settings, url: str) -> ReplayTarget:
    """Return the system at an address, with its database if the settings know it.

    Raises NoReplayTarget if nothing answers there.
    """
    url = url.rstrip("/")
    if not await is_ready(url):
        raise NoReplayTarget(
            f"nothing answers at {url}", advice="Start it with `./evertalk up`, or leave --url out."
        )
    return ReplayTarget(
        url=url, database_url=_known_database(settings), note="a running system, with its own caps"
    )


async def running_here(settings: Settings) -> ReplayTarget | None:
    """Return the system that runs on the settings' data folder.

    None if there is none or it does not answer.
    """
    lock = settings.data_dir / "up.lock"
    if not is_held(lock):
        return None
    url = lock.read_text().strip()
    return await at_url(settings, url) if url and await is_ready(url) else None


class TemporaryInstallation:
    """`evertalk up` as a process in a temporary folder, which is deleted at the end."""

    def __init__(
        self, settings: Settings, *, window: int | None, more: Mapping[str, str] | None = None
    ) -> None:
        self._settings = settings
        self._window = window
        self._more = dict(more or {})
        self._process: subprocess.Popen[bytes] | None = None
        self.folder = Path()

    async def __aenter__(self) -> ReplayTarget:
        self.folder = Path(tempfile.mkdtemp(prefix="evertalk-replay-"))
        try:
            self._start()
            url = await self._ready()
        except BaseException:
            await self._stop()
            raise
        window = f", a context window of {self._window:,} tokens" if self._window else ""
        return ReplayTarget(
            url=url,
            database_url=build_urls(self.folder / "servers")[0],
            note=f"a system of its own{window}; spending caps raised to ${GENEROUS_USD} a day",
        )

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop()

    def _start(self) -> None:
        with (self.folder / "up.log").open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "shared", "up"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env=self._environment(),
                start_new_session=True,
                preexec_fn=die_with_parent(signal.SIGTERM),
            )

    def _environment(self) -> dict[str, str]:
        return {**environment_of(self._settings, folder=self.folder, window=self._window), **self._more}

    async def _ready(self) -> str:
        """Return the system's address once every process is ready."""
        until = time.monotonic() + READY_SECONDS
        note, log = self.folder / "up.lock", self.folder / "up.log"
        while time.monotonic() < until:
            if self._process is None or self._process.poll() is not None:
                break
            url = note.read_text().strip() if note.exists() else ""
            if url and "is ready" in log.read_text(errors="replace") and await is_ready(url):
                return url
            await asyncio.sleep(0.1)
        words = " | ".join(log.read_text(errors="replace").split("\n")[-6:]).strip(" |")
        raise NoReplayTarget(
            f"a system of its own does not start: {words or 'it stays silent'}",
            advice="`./evertalk doctor` tells what is missing.",
        )

    async def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGTERM)
            await asyncio.shield(asyncio.to_thread(_wait, process))
        shutil.rmtree(self.folder, ignore_errors=True)


async def is_ready(url: str) -> bool:
    with contextlib.suppress(ClientError, OSError, TimeoutError, ValueError):
        async with (
            ClientSession(timeout=ClientTimeout(total=PROBE_SECONDS)) as http,
            http.get(f"{url}/readyz") as response,
        ):
            return response.status == 200
    return False


def environment_of(settings: Settings, *, folder: Path, window: int | None) -> dict[str, str]:
    """Return the environment of a temporary system: the operator's settings with another folder and port, and
    without a cap that would stop it.
    """
    names = list_setting_names()
    kept = {name: value for name, value in os.environ.items() if name not in names.values()}
    settings = settings if window is None else settings.model_copy(update=window_settings(settings, window))
    given = {
        names[field]: _written(getattr(settings, field)) for field in names if field not in _PRIVATE_SETTINGS
    }
    caps = [f"EVERTALK_CAP_{scope}_USD" for scope in ("TOTAL_PER_DAY", "VISITOR_PER_DAY")]
    return {
        **kept,
        **{name: value for name, value in given.items() if value},
        **dict.fromkeys(caps, GENEROUS_USD),
        ENV_FILE_NAME: "",
        "EVERTALK_DATA_DIR": str(folder),
        "EVERTALK_HTTP_HOST": "127.0.0.1",
        "EVERTALK_HTTP_PORT": "0",
    }


def window_settings(settings: Settings, window: int) -> dict[str, int | None]:
    """Return the settings that depend on a context window: what is kept free of it, and the size of an
    answer.
    """
    policy = preset(settings.preset)
    least_left = min(policy.reserve_leaves, int(policy.reserve_leaves_share * window))
    reserve = min(policy.reserve, window - least_left)
    flush = settings.flush_threshold or policy.timing.flush_threshold
    return {
        "context_window": window,
        "reserve": reserve,
        "soft_budget": None,
        "flush_threshold": min(flush, int(policy.timing.flush_share * (window - reserve))) or None,
        "max_output": min(settings.max_output or policy.max_output, int(policy.max_output_share * window)),
    }


def _written(value: object) -> str:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, tuple):
        pairs = (f"{part[0]}={part[1]}" if isinstance(part, tuple) else str(part) for part in value)
        return " ".join(pairs)
    return "" if value is None else str(value)


def _known_database(settings: Settings) -> str | None:
    if settings.database_url is not None:
        return settings.database_url.get_secret_value()
    folder = settings.data_dir / "servers"
    return build_urls(folder)[0] if are_running(folder) else None


def _wait(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(STOP_SECONDS)
