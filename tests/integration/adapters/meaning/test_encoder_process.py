"""The encoder's process answers on its socket, and its faults stay in it."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shared.adapters.meaning.client import LocalEncoder
from shared.adapters.meaning.process import MOST_TEXTS
from shared.core.memory.vectors import nearness
from shared.core.values.errors import EncoderEnded, ModelUnavailable
from tests.kit.fakes.encoder import CONNECTS, ENDS, HANGS, RAISES, running_encoder


@pytest.fixture
async def socket_path(tmp_path: Path) -> AsyncIterator[Path]:
    path = tmp_path / "e.sock"
    async with running_encoder(path):
        yield path


async def test_process_returns_a_vector_of_each_text(socket_path: Path) -> None:
    encoder = LocalEncoder(socket_path, question_seconds=10)
    (question,) = (await encoder.encode(("Wo ist mein Fahrrad?",), question=True)).vectors
    encoded = await encoder.encode(("My bicycle is here.", "Cheese for supper."))
    near, far = (nearness(question, vector) for vector in encoded.vectors)
    assert encoded.encoder == "known-words/128"
    assert near > far + 0.2


async def test_process_tells_its_model_without_texts(socket_path: Path) -> None:
    encoded = await LocalEncoder(socket_path).encode(())
    assert (encoded.encoder, encoded.vectors) == ("known-words/128", ())


async def test_socket_is_closed_to_other_accounts(socket_path: Path) -> None:
    assert stat.S_IMODE(socket_path.stat().st_mode) == 0o600


@pytest.mark.parametrize("text", ["", "\0", "\ud800", "😀" * 4_000, "x" * 50_000], ids=ascii)
async def test_strange_text_has_a_vector(socket_path: Path, text: str) -> None:
    assert len((await LocalEncoder(socket_path).encode((text,))).vectors[0]) == 128


UNREADABLE = (
    b"{}",
    b"nonsense",
    b'{"texts": [1]}',
    b'{"texts": null}',
    b"[" * 9_000,
    b'{"texts": [' + b", ".join([b'""'] * (MOST_TEXTS + 1)) + b"]}",
    b"x" * 2**20,
)
BROKEN_ANSWERS = (
    b"",
    b"{}\n",
    b"[]\n",
    b'{"encoder": "x", "vectors": ["!"]}\n',
    b'{"encoder": "", "vectors": [""]}\n',
    b'{"encoder": "x", "vectors": []}\n',
    b"x" * 2**21,
)


@pytest.mark.parametrize("line", UNREADABLE, ids=range(len(UNREADABLE)))
async def test_unreadable_request_is_answered_with_its_error(socket_path: Path, line: bytes) -> None:
    reader, writer = await asyncio.open_unix_connection(str(socket_path))
    writer.write(line + b"\n")
    answer = await reader.readline()
    writer.close()
    assert b"the request cannot be read" in answer
    assert (await LocalEncoder(socket_path).encode(())).encoder


async def test_error_of_the_model_leaves_its_process_running(socket_path: Path) -> None:
    encoder = LocalEncoder(socket_path)
    with pytest.raises(ModelUnavailable, match="no such word"):
        await encoder.encode((RAISES,))
    assert len((await encoder.encode(("bicycle",))).vectors) == 1


async def test_model_has_no_way_to_the_network(socket_path: Path) -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        with pytest.raises(ModelUnavailable, match=r"unreachable|OSError"):
            await LocalEncoder(socket_path).encode((f"{CONNECTS}{port} ",))
    finally:
        server.close()


async def test_end_of_the_process_differs_from_its_absence(tmp_path: Path) -> None:
    path = tmp_path / "e.sock"
    encoder = LocalEncoder(path, question_seconds=10)
    async with running_encoder(path) as process:
        with pytest.raises(EncoderEnded):
            await encoder.encode((ENDS,))
        assert await process.wait() == 66
        with pytest.raises(ModelUnavailable) as away:
            await encoder.encode(("bicycle",))
        assert not isinstance(away.value, EncoderEnded)
    async with running_encoder(path):
        assert len((await encoder.encode(("bicycle",))).vectors) == 1


async def test_hanging_model_ends_its_process(tmp_path: Path) -> None:
    async with running_encoder(tmp_path / "e.sock") as process:
        with pytest.raises(EncoderEnded):
            await LocalEncoder(tmp_path / "e.sock").encode((HANGS,))
        assert await process.wait() < 0


async def test_question_does_not_wait_for_a_hanging_model(tmp_path: Path) -> None:
    async with running_encoder(tmp_path / "e.sock"):
        encoder = LocalEncoder(tmp_path / "e.sock", question_seconds=0.05)
        hanging = asyncio.create_task(LocalEncoder(tmp_path / "e.sock").encode((HANGS,)))
        await asyncio.sleep(0.05)
        with pytest.raises(ModelUnavailable, match="no answer within"):
            await encoder.encode(("bicycle",), question=True)
        with pytest.raises(EncoderEnded):
            await hanging


async def test_half_installed_package_is_the_answer_to_each_request(tmp_path: Path) -> None:
    module = "tests.kit.fakes.half_installed"
    async with running_encoder(tmp_path / "e.sock", module) as process:
        with pytest.raises(ModelUnavailable, match="cannot be loaded: ImportError"):
            await LocalEncoder(tmp_path / "e.sock").encode(("bicycle",))
        assert process.returncode is None


@pytest.mark.parametrize("answer", BROKEN_ANSWERS, ids=range(len(BROKEN_ANSWERS)))
async def test_answer_of_a_broken_encoder_is_no_vector(tmp_path: Path, answer: bytes) -> None:
    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(answer)
        writer.close()

    server = await asyncio.start_unix_server(reply, str(tmp_path / "e.sock"))
    try:
        with pytest.raises(ModelUnavailable):
            await LocalEncoder(tmp_path / "e.sock").encode(("bicycle",))
    finally:
        server.close()
