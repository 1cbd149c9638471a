"""Files of strangers: few are opened at once, one of a sender, at low priority, none again that failed."""

from __future__ import annotations

import asyncio
import resource
import sys
from pathlib import Path
from typing import Any

import pytest

from shared.adapters.files import sandbox_client
from shared.adapters.files.file_reading import read_file
from shared.adapters.files.sandbox_client import (
    AT_ONCE,
    FAILED_SECONDS,
    MOST_CPU_SECONDS,
    MOST_FAILED,
    SandboxClient,
    SenderThrottled,
    cpu_seconds,
    open_in_sandbox,
)
from shared.core.values.files import Document, NotRead
from tests.kit.sample_files import pdf, slow_pdf

HEAD: dict[str, Any] = {"pages": 1}


class Elsewhere:
    """Opens nothing until it is told to; counts what is under way."""

    def __init__(self) -> None:
        self.begun: list[bytes] = []
        self.now = 0
        self.most = 0
        self.goes_on = asyncio.Event()
        self.head: dict[str, Any] | None = HEAD

    async def __call__(self, kind: str, content: bytes, *, seconds: float) -> Any:
        self.begun.append(content)
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await self.goes_on.wait()
        finally:
            self.now -= 1
        return self.head, b"words" if self.head else b""

    async def until(self, count: int) -> None:
        async with asyncio.timeout(5):
            while len(self.begun) < count:
                await asyncio.sleep(0)


class Clock:
    def __init__(self) -> None:
        self.seconds = 1_000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Elsewhere:
    found = Elsewhere()
    monkeypatch.setattr(sandbox_client, "open_in_sandbox", found)
    return found


@pytest.mark.control("S48")
async def test_one_sender_has_one_place(elsewhere: Elsewhere) -> None:
    openings = SandboxClient()
    async with asyncio.TaskGroup() as tasks:
        for number in range(3):
            tasks.create_task(openings.open("pdf", b"a%d" % number, sender="a"))
        await elsewhere.until(1)
        tasks.create_task(openings.open("pdf", b"b", sender="b"))
        await elsewhere.until(2)
        assert elsewhere.begun == [b"a0", b"b"]
        elsewhere.goes_on.set()
    assert len(elsewhere.begun) == 4


@pytest.mark.control("S48")
async def test_papers_keep_neither_pictures_nor_texts_waiting(elsewhere: Elsewhere) -> None:
    openings = SandboxClient()
    async with asyncio.TaskGroup() as tasks:
        for number in range(6):
            tasks.create_task(openings.open("pdf", b"%d" % number, sender=f"s{number}"))
        await elsewhere.until(AT_ONCE)
        tasks.create_task(openings.open("picture", b"picture", sender="p"))
        await elsewhere.until(AT_ONCE + 1)
        assert elsewhere.begun[-1] == b"picture"
        text = await read_file(b"words", "a.txt", opened=lambda *_: openings.open("pdf", b"", sender="t"))
        assert text == Document(name="a.txt", text="words")
        elsewhere.goes_on.set()
    assert elsewhere.most == AT_ONCE + 1


@pytest.mark.control("S48")
async def test_what_failed_is_not_opened_again_for_a_while(elsewhere: Elsewhere) -> None:
    clock = Clock()
    openings = SandboxClient(clock=clock)
    elsewhere.head = None
    elsewhere.goes_on.set()
    for sender in ("a", "b", "c"):
        assert await openings.open("pdf", b"hostile", sender=sender) == (None, b"")
    assert elsewhere.begun == [b"hostile"]
    assert await openings.open("pdf", b"another", sender="a") == (None, b"")
    clock.seconds += FAILED_SECONDS
    elsewhere.head = HEAD
    assert await openings.open("pdf", b"hostile", sender="a") == (HEAD, b"words")
    assert await openings.open("pdf", b"hostile", sender="a") == (HEAD, b"words")


async def test_of_the_same_file_many_times_at_once_one_is_opened(elsewhere: Elsewhere) -> None:
    openings = SandboxClient()
    elsewhere.head = None
    async with asyncio.TaskGroup() as tasks:
        for _ in range(5):
            tasks.create_task(openings.open("pdf", b"hostile", sender="a"))
        await elsewhere.until(1)
        elsewhere.goes_on.set()
    assert elsewhere.begun == [b"hostile"]


async def test_so_many_failures_are_remembered_and_no_more(elsewhere: Elsewhere) -> None:
    openings = SandboxClient()
    elsewhere.head = None
    elsewhere.goes_on.set()
    for number in range(MOST_FAILED + 1):
        await openings.open("pdf", b"%d" % number, sender="a")
    await openings.open("pdf", b"1", sender="a")
    assert len(elsewhere.begun) == MOST_FAILED + 1
    await openings.open("pdf", b"0", sender="a")
    assert len(elsewhere.begun) == MOST_FAILED + 2


@pytest.mark.control("S48")
async def test_sender_over_the_minute_quota_waits_and_others_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()

    async def slow(*_: Any, **__: Any) -> Any:
        clock.seconds += 6
        return HEAD, b"words"

    monkeypatch.setattr(sandbox_client, "open_in_sandbox", slow)
    openings = SandboxClient(clock=clock)
    for number in range(3):
        await openings.open("pdf", b"%d" % number, sender="a", most_seconds=15)
    with pytest.raises(SenderThrottled) as waits:
        await openings.open("pdf", b"3", sender="a", most_seconds=15)
    assert waits.value.retry_after_seconds == 48
    await openings.open("pdf", b"3", sender="b", most_seconds=15)
    clock.seconds += waits.value.retry_after_seconds
    await openings.open("pdf", b"3", sender="a", most_seconds=15)


async def test_sender_without_a_place_leaves_none_taken(
    elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox_client, "WAIT_SECONDS", 0.05)
    openings = SandboxClient()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(openings.open("pdf", b"a", sender="a"))
        await elsewhere.until(1)
        with pytest.raises(TimeoutError):
            await openings.open("pdf", b"a2", sender="a")
        tasks.create_task(openings.open("pdf", b"b", sender="b"))
        await elsewhere.until(2)
        elsewhere.goes_on.set()
    assert await openings.open("pdf", b"a2", sender="a") == (HEAD, b"words")


def test_a_small_file_has_little_time() -> None:
    assert [cpu_seconds(size) for size in (0, 4_500, 500_000, 20 * 2**20)] == [6, 6, 16, MOST_CPU_SECONDS]


@pytest.mark.skipif(sys.platform != "linux", reason="limits of the processor are Linux's here")
@pytest.mark.control("S48")
async def test_a_small_paper_that_takes_long_is_given_up() -> None:
    """Six seconds of a processor for some kilobytes, and everybody else comes first."""
    content = slow_pdf()
    assert len(content) < 10_000
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert await open_in_sandbox("pdf", content, seconds=120) == (None, b"")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert 4 < after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 8


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.control("S48")
async def test_files_are_opened_at_low_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    niceness: list[int] = []
    launch = asyncio.create_subprocess_exec

    async def watched(*words: str, **options: Any) -> asyncio.subprocess.Process:
        process = await launch(*words, **options)
        niceness.append(process.pid)
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", watched)
    opening = asyncio.create_task(open_in_sandbox("pdf", slow_pdf(), seconds=60))
    async with asyncio.timeout(30):
        while not niceness or _nice(niceness[0]) == _nice(0):
            await asyncio.sleep(0.02)
    assert _nice(niceness[0]) == min(19, _nice(0) + 10)
    opening.cancel()
    await asyncio.wait([opening])


def _nice(pid: int) -> int:
    return int(Path(f"/proc/{pid or 'self'}/stat").read_text().rpartition(")")[2].split()[16])


async def test_a_good_paper_is_read() -> None:
    openings = SandboxClient()
    found = await read_file(
        pdf("First page"), "a.pdf", opened=lambda kind, content: openings.open(kind, content, sender="a")
    )
    assert isinstance(found, Document)
    assert "First page" in found.text
    assert isinstance(
        await read_file(b"", "a", opened=lambda *_: openings.open("pdf", b"", sender="a")), NotRead
    )
