"""Processes of Evertalk as children of the supervisor: started, read, restarted and stopped."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from logging.handlers import RotatingFileHandler
from pathlib import Path

from shared.adapters.embedded.process import die_with_parent, stop_leftover
from shared.supervision.given_environment import write_environment
from shared.supervision.spare import GO, SPARE_NAME, has_room_for_spare

ROOT = Path(__file__).resolve().parents[2]
"""Folder of the program, in which each child process runs."""

_LOG_BYTES = 5 * 1024 * 1024
"""Maximum bytes of one log file."""
_LOG_FILES = 3
"""Number of older log files that are kept."""
_FIRST_PAUSE_SECONDS = 0.2
"""Pause before the first restart; it doubles with each further one."""
_LONGEST_PAUSE_SECONDS = 10.0
_LONG_ENOUGH_SECONDS = 30.0
"""Lifetime in seconds after which the pause starts again from the shortest."""
_LONGEST_LINE_BYTES = 1024 * 1024
"""Maximum bytes of a line of output; longer lines are dropped."""
_LOUD = ("warning", "error", "critical")
"""Levels of log lines that are also printed in the terminal."""
_REPEAT_AFTER_SECONDS = 30.0
"""Seconds in which a repeated warning is printed only once; the log contains each."""
_CONFIGURATION_EXIT = 2
"""Exit code for a bad configuration, after which a restart is useless."""
_SPARE_AFTER_SECONDS = 10.0
"""Seconds after its start from which a process gets a spare, so that the spare's imports do not delay the
start.
"""
_LONGEST_SPARE_PAUSE_SECONDS = 600.0
_GIVE_SECONDS = 2.0
"""Seconds for a running process to read a new environment; one that does not has it after its next start."""
_GO_SECONDS = 2.0
"""Seconds for a spare to accept its start signal, or to end."""


class _LogFile(RotatingFileHandler):
    """Log file that raises write errors instead of printing a traceback for each line."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name is logging's
        raise


class ChildMisconfigured(Exception):
    """A process ended with exit code 2, because of its configuration, so that starting it again would not
    help.
    """


@dataclass(slots=True, kw_only=True)
class ChildProcess:
    """Child process of the supervisor, `python -m NAME` unless `command` is given.

    `run` keeps it running until cancelled; after that `stop` ends it. Its output goes to a log file in
    `folder`, and warnings to `say`.
    """

    name: str
    environment: Mapping[str, str]
    folder: Path
    say: Callable[[str], None]
    command: Sequence[str] = ()
    keeps_spare: bool = False
    """True if a spare process is kept ready to replace this one, which shortens an interruption."""
    _process: asyncio.subprocess.Process | None = field(default=None, init=False)
    _last_lines: list[str] = field(default_factory=list, init=False)
    _log: logging.Handler | None = field(default=None, init=False)
    _unwritten: int = field(default=0, init=False)
    _said: dict[str, float] = field(default_factory=dict, init=False)
    _spare: asyncio.subprocess.Process | None = field(default=None, init=False)

    @property
    def pid(self) -> int | None:
        """Process id; None before the first start."""
        return None if self._process is None else self._process.pid

    def __post_init__(self) -> None:
        self.command = self.command or (sys.executable, "-m", self.name)

    async def run(self) -> None:
        """Run the process until cancelled; restart it after growing pauses when it ends.

        Raises ChildMisconfigured if it ends with exit code 2, which means a bad configuration.
        """
        await stop_leftover(self._pid_file, (" ".join(self.command),), signal.SIGTERM)
        pause_seconds = _FIRST_PAUSE_SECONDS
        while True:
            began = asyncio.get_running_loop().time()
            code = await self._live_once()
            if code == _CONFIGURATION_EXIT:
                words = [line for line in self._last_lines if not _parse_line(line)]
                raise ChildMisconfigured("\n".join(words) or f"{self.name} refuses its configuration")
            lived = asyncio.get_running_loop().time() - began
            pause_seconds = _FIRST_PAUSE_SECONDS if lived > _LONG_ENOUGH_SECONDS else pause_seconds
            last_words = next((f": {line[:200]}" for line in self._last_lines[-1:] if code > 0), "")
            self.say(f"{self.name} ended ({_describe(code)}{last_words}); starting it again.")
            self.say(f"  Its log is {self._log_file}")
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(pause_seconds * 2, _LONGEST_PAUSE_SECONDS)

    async def give(self, environment: Mapping[str, str]) -> None:
        """Change the environment of the running process and of later starts.

        The change is written to the process's standard input; a process that does not read it within 2
        seconds has it after its next start. A spare is ended.
        """
        former, self.environment = self.environment, environment
        await self._end_spare()
        await self._send_changes(former)

    async def _send_changes(self, former: Mapping[str, str]) -> None:
        """Write to the running process what has changed in the environment since `former`."""
        process = self._process
        if former == self.environment or process is None:
            return
        if process.returncode is not None or process.stdin is None:
            return
        with contextlib.suppress(OSError, TimeoutError):
            process.stdin.write(write_environment(former, self.environment))
            await asyncio.wait_for(process.stdin.drain(), _GIVE_SECONDS)

    async def stop(self, *, timeout_seconds: float) -> None:
        """End the process and its spare: by SIGTERM, after `timeout_seconds` by SIGKILL; wait for the end."""
        await self._end_spare()
        process = self._process
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            try:
                await asyncio.wait_for(process.wait(), timeout_seconds)
            except TimeoutError:
                self.say(f"{self.name} did not stop within {timeout_seconds:.0f} s and was killed")
                process.kill()
                await asyncio.wait_for(process.wait(), 5)
        self._pid_file.unlink(missing_ok=True)
        if self._log is not None:
            with contextlib.suppress(OSError):
                self._log.close()

    async def _live_once(self) -> int:
        """Start the process, or use the spare, and read its output until it ends; return its exit code."""
        self._last_lines.clear()
        process = await self._start()
        with contextlib.suppress(OSError):
            # On a full disk the file cannot be written; the process still ends together with the supervisor.
            self._pid_file.write_text(f"{process.pid}\n")
        assert process.stdout is not None
        keeping = asyncio.create_task(self._keep_spare()) if self.keeps_spare else None
        try:
            await self._read(process.stdout)
            return await process.wait()
        finally:
            if keeping is not None:
                keeping.cancel()
                await asyncio.gather(keeping, return_exceptions=True)

    async def _start(self) -> asyncio.subprocess.Process:
        """Start the process, or use the spare, and return it.

        A change of the environment that arrives during the start is written to the process.
        """
        environment = self.environment
        process = self._process = await self._take_spare() or await self._spawn(environment)
        await self._send_changes(environment)
        return process

    async def _spawn(
        self, environment: Mapping[str, str], *, spare: bool = False
    ) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *self.command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=ROOT,
            env={**environment, **({SPARE_NAME: "yes"} if spare else {})},
            limit=_LONGEST_LINE_BYTES,
            start_new_session=True,
            preexec_fn=die_with_parent(signal.SIGTERM),
        )

    async def _keep_spare(self) -> None:
        """Keep a spare process ready until cancelled; the first one starts after `_SPARE_AFTER_SECONDS`.

        The pause before a dead spare is replaced doubles up to `_LONGEST_SPARE_PAUSE_SECONDS`. No spare is
        started while the machine has little memory. A spare whose environment changed during its start is
        ended.
        """
        pause_seconds = _SPARE_AFTER_SECONDS
        while True:
            await asyncio.sleep(pause_seconds)
            if self._spare is not None and self._spare.returncode is None:
                continue
            if self._spare is not None:
                pause_seconds = min(pause_seconds * 2, _LONGEST_SPARE_PAUSE_SECONDS)
            if has_room_for_spare():
                environment = self.environment
                self._spare = await self._spawn(environment, spare=True)
                if environment != self.environment:
                    await self._end_spare()

    async def _take_spare(self) -> asyncio.subprocess.Process | None:
        """Start the work of the spare and return it; None if no spare accepts the start signal."""
        spare, self._spare = self._spare, None
        if spare is None or spare.returncode is not None or spare.stdin is None:
            return None
        try:
            spare.stdin.write(GO)
            await asyncio.wait_for(spare.stdin.drain(), _GO_SECONDS)
        except (OSError, TimeoutError):
            spare.kill()
            return None
        return spare

    async def _end_spare(self) -> None:
        spare, self._spare = self._spare, None
        if spare is None or spare.returncode is not None or spare.stdin is None:
            return
        spare.stdin.close()
        try:
            await asyncio.wait_for(spare.wait(), _GO_SECONDS)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                spare.kill()
            await spare.wait()

    async def _read(self, output: asyncio.StreamReader) -> None:
        while True:
            try:
                line = await output.readline()
            except ValueError:
                continue  # lines beyond the maximum length are dropped
            if not line:
                return
            self._take(line.decode(errors="replace").rstrip())

    def _take(self, line: str) -> None:
        self._last_lines = [*self._last_lines[-9:], line]
        self._write(line)
        event = _parse_line(line)
        if event.get("level") in _LOUD:
            self._say_once(f"{self.name}: {event['level']}: {event.get('event', line)}")

    def _say_once(self, words: str) -> None:
        """Print a line, unless the same line was printed less than _REPEAT_AFTER_SECONDS ago."""
        now = asyncio.get_running_loop().time()
        if now - self._said.get(words, -_REPEAT_AFTER_SECONDS) >= _REPEAT_AFTER_SECONDS:
            self._said = {key: at for key, at in self._said.items() if now - at < _REPEAT_AFTER_SECONDS}
            self._said[words] = now
            self.say(words)

    def _write(self, line: str) -> None:
        """Write a line to the log file.

        The first of several failures is printed; none ends the process.
        """
        try:
            self._print_line(line)
        except OSError as error:
            self._unwritten += 1
            if self._unwritten == 1:
                self.say(f"{self.name}: its log cannot be written ({error.strerror}); free some disk space")
        else:
            self._unwritten = 0

    def _print_line(self, line: str) -> None:
        if self._log is None:
            self._log_file.parent.mkdir(mode=0o700, exist_ok=True)
            self._log_file.touch(mode=0o600)
            self._log = _LogFile(
                self._log_file, maxBytes=_LOG_BYTES, backupCount=_LOG_FILES, encoding="utf-8", delay=True
            )
        self._log.handle(logging.makeLogRecord({"msg": line, "name": self.name}))

    @property
    def _log_file(self) -> Path:
        return self.folder / "logs" / f"{self.name}.log"

    @property
    def _pid_file(self) -> Path:
        return self.folder / f"{self.name}.pid"


def build_child_environment(given: Mapping[str, str]) -> dict[str, str]:
    """Return `given` with the variables that each child process needs: `PYTHONPATH` and unbuffered output."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    return {**given, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}


def _parse_line(line: str) -> Mapping[str, object]:
    """Return the event of a JSON log line; empty for any other line."""
    try:
        event = json.loads(line)
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}


def _describe(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
