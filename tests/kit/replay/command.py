"""The command `./evertalk replay`: reads its arguments, plays the conversations, and prints the verdicts."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, get_args
from urllib.parse import urlsplit

from aiohttp import ClientSession, ClientTimeout, DummyCookieJar, TCPConnector

from shared.adapters.embedded import EmbeddedServerFailed
from shared.config.settings import Settings, load_settings
from shared.core.presets.catalog import preset
from shared.core.session.policy import ContradictoryPolicy, with_overrides
from tests.kit.replay.evidence import DatabaseProbe, Evidence
from tests.kit.replay.play import PlayedConversation, Speed, play
from tests.kit.replay.progress import ProgressBar
from tests.kit.replay.report import as_json, as_table
from tests.kit.replay.scripts import BadScript, ConversationScript, read_scripts
from tests.kit.replay.strict_server import StrictServer, Wire, strict_server
from tests.kit.replay.system import (
    NoReplayTarget,
    ReplayTarget,
    TemporaryInstallation,
    at_url,
    running_here,
    window_settings,
)
from tests.kit.replay.telegram import replay_on_telegram
from tests.kit.replay.verdict import ReplayVerdict, judge

EXIT_BROKEN = 1
EXIT_BAD_INPUT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    path: Path
    only: str | None
    channel: str
    wire: Wire | None
    window: int | None
    speed: Speed
    limit: int | None
    together: int
    json: bool
    url: str | None


class _ReplayRefused(Exception):
    def __init__(self, message: str, *, advice: str = "") -> None:
        super().__init__(message)
        self.advice = advice


def main(arguments: Sequence[str], settings: Settings | None = None) -> int:
    """Run the command; return 0 if every promise held, 1 if one was broken, 2 if nothing could be played."""
    wish = _parse(arguments)
    try:
        if wish.wire and wish.url:
            raise _ReplayRefused(
                "--wire plays against a model server of its own",
                advice="Leave --url out: a system that runs already has its own models.",
            )
        if wish.channel == "telegram" and wish.url:
            raise _ReplayRefused(
                "--channel telegram plays on a system of its own",
                advice="Leave --url out: a bot that runs already talks with the real Telegram.",
            )
        scripts = read_scripts(wish.path, only=wish.only, limit=wish.limit)
        settings = settings or load_settings()
        _check_window(wish, settings)
        return asyncio.run(_replay(scripts, wish, settings))
    except (BadScript, NoReplayTarget, EmbeddedServerFailed, _ReplayRefused) as error:
        sys.stderr.write(f"evertalk replay: {error}\n")
        if error.advice:
            sys.stderr.write(f"  {error.advice}\n")
        return EXIT_BAD_INPUT
    except KeyboardInterrupt:
        sys.stderr.write("evertalk replay: stopped\n")
        return EXIT_BAD_INPUT


async def _replay(scripts: Sequence[ConversationScript], wish: ReplayOptions, settings: Settings) -> int:
    on_channel = _on_telegram if wish.channel == "telegram" else _on_web
    async with strict_server(wish.wire, window=wish.window) as server:
        verdicts, found = await on_channel(scripts, wish, settings, server)
        found |= {} if server is None else await server.facts()
    facts = {
        "window": wish.window,
        "checked_by": "screen and database" if verdicts[0].turns is not None else "screen",
        **found,
    }
    sys.stdout.write((as_json if wish.json else as_table)(verdicts, facts) + "\n")
    failed = any(verdict.broken or verdict.given_up for verdict in verdicts)
    failed = failed or bool(found.get("violations") or found.get("invalid"))
    return EXIT_BROKEN if failed else 0


async def _on_web(
    scripts: Sequence[ConversationScript],
    wish: ReplayOptions,
    settings: Settings,
    server: StrictServer | None,
) -> tuple[list[ReplayVerdict], dict[str, object]]:
    async with AsyncExitStack() as stack:
        system = await _system(wish, settings, stack, server)
        began = time.monotonic()
        played = await _play_all(scripts, wish, system)
        verdicts, jobs_left = await _judge_all(played, system)
    return verdicts, {
        "channel": "web",
        "system": system.note,
        "url": system.url,
        "model": next((each.visitor.model for each in played if each.visitor.model), ""),
        "jobs_left": jobs_left,
        "seconds": round(time.monotonic() - began, 1),
    }


async def _on_telegram(
    scripts: Sequence[ConversationScript],
    wish: ReplayOptions,
    settings: Settings,
    server: StrictServer | None,
) -> tuple[list[ReplayVerdict], dict[str, object]]:
    sys.stderr.write("Starting a stand-in for Telegram and a system of its own …\n")
    return await replay_on_telegram(
        scripts, settings, window=wish.window, speed=wish.speed, together=wish.together,
        more={} if server is None else server.environment,
    )  # fmt: skip


async def _system(
    wish: ReplayOptions, settings: Settings, stack: AsyncExitStack, server: StrictServer | None
) -> ReplayTarget:
    if wish.url:
        return await at_url(settings, wish.url)
    if wish.window is None and server is None and (running := await running_here(settings)) is not None:
        return running
    sys.stderr.write("Starting a system of its own …\n")
    return await stack.enter_async_context(
        TemporaryInstallation(
            settings, window=wish.window, more=None if server is None else server.environment
        )
    )


async def _play_all(
    scripts: Sequence[ConversationScript], wish: ReplayOptions, system: ReplayTarget
) -> list[PlayedConversation]:
    places = asyncio.Semaphore(wish.together)
    bar = ProgressBar(sum(len(script.messages) for script in scripts))

    async def one(script: ConversationScript) -> PlayedConversation:
        async with places:
            return await play(
                script,
                http=http,
                url=system.url,
                speed=wish.speed,
                on_progress=lambda count, label: bar.advance(count, label=label),
            )

    timeout = ClientTimeout(total=None, connect=15)
    # without cookies, so that every conversation is a separate visitor
    async with ClientSession(
        timeout=timeout, cookie_jar=DummyCookieJar(), connector=TCPConnector(limit=0)
    ) as http:
        try:
            return await _all([one(script) for script in scripts])
        finally:
            bar.close()


async def _all(talks: Sequence[Coroutine[Any, Any, PlayedConversation]]) -> list[PlayedConversation]:
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(talk) for talk in talks]
    return [task.result() for task in running]


async def _judge_all(
    played: Sequence[PlayedConversation], system: ReplayTarget
) -> tuple[list[ReplayVerdict], int]:
    """Return the verdicts, read from the database once no background job is due, and the number of jobs
    left.
    """
    if system.database_url is None:
        return [_judged(each, None) for each in played], 0
    witness = await DatabaseProbe.connect(system.database_url)
    try:
        left = await witness.wait_for_jobs([each.visitor.session for each in played if each.visitor.session])
        return [_judged(each, await _testimony(witness, each)) for each in played], left
    finally:
        await witness.close()


async def _testimony(witness: DatabaseProbe, played: PlayedConversation) -> Evidence | None:
    return await witness.collect(played.visitor.session) if played.visitor.session else None


def _judged(played: PlayedConversation, evidence: Evidence | None) -> ReplayVerdict:
    visitor = played.visitor
    return judge(played.script.id, visitor.session, visitor.seen, evidence, given_up=played.given_up)


def _check_window(wish: ReplayOptions, settings: Settings) -> None:
    """Raise _ReplayRefused if `--window` cannot be used or is too small, before anything is started."""
    if wish.window is None:
        return
    if wish.url:
        raise _ReplayRefused(
            "--window needs a system that is started for it",
            advice="Leave --url out, or set EVERTALK_CONTEXT_WINDOW where that system is started.",
        )
    try:
        numbers = window_settings(settings, wish.window)
        with_overrides(preset(settings.preset), keep_turns=settings.keep_turns, **numbers)
    except ContradictoryPolicy as error:
        raise _ReplayRefused(
            f"--window {wish.window} cannot be: {error}", advice="Try 16000, or what your model really has."
        ) from None


class _ReplayParser(argparse.ArgumentParser):
    """A parser whose errors are one line and a hint instead of the whole usage."""

    def error(self, message: str) -> NoReturn:
        sys.stderr.write(f"evertalk replay: {message}\n  ./evertalk replay --help shows what can be said.\n")
        sys.exit(EXIT_BAD_INPUT)


def _parse(arguments: Sequence[str]) -> ReplayOptions:
    parser = _ReplayParser(
        prog="evertalk replay", description="Play recorded conversations through the running system."
    )
    parser.add_argument(
        "path", type=Path, metavar="PATH", help="file with conversations in LoCoMo's JSON format"
    )
    parser.add_argument("--only", metavar="ID", help="sample_id of a single conversation")
    parser.add_argument("--channel", choices=("web", "telegram"), default="web")
    parser.add_argument(
        "--wire", choices=get_args(Wire), help="use a strict fake server of this API as the model"
    )
    parser.add_argument(
        "--window", type=_count, metavar="N", help="context window in tokens; starts a separate system"
    )
    parser.add_argument(
        "--speed",
        choices=("max", "real"),
        default="max",
        help="real: send messages at the pace of a person who types",
    )
    parser.add_argument(
        "--limit", type=_count, metavar="TURNS", help="maximum number of messages per conversation"
    )
    parser.add_argument(
        "--together", type=_count, default=5, metavar="N", help="conversations that run at the same time"
    )
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")
    parser.add_argument("--url", type=_address, help="address of a running system")
    return ReplayOptions(**vars(parser.parse_args(arguments)))


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def _address(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise argparse.ArgumentTypeError(f"{text!r} is not an address such as http://127.0.0.1:8080")
    return f"{parts.scheme}://{parts.netloc}"
