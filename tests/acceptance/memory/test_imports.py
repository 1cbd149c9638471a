"""People upload exports in pieces; the worker looks through them, imports them, and resumes after a kill."""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

import pytest

from shared.adapters.past.export_files import ExportFiles
from shared.adapters.postgres.memory.import_files import TooManyImports
from shared.core.memory.past import PIECE_BYTES, ImportFile
from shared.runtime import CrashPoint, ignore_crash_point
from shared.services.memory.import_runner import ImportRunner
from shared.services.memory.past_importer import PastImporter
from tests.acceptance.long_talks import WINDOW
from tests.kit.app_driver import Visit, visit

FACT = "The bicycle of Zanzibarine is in the cellar."
CHATGPT = [
    {
        "title": "Boats", "create_time": 1614852000, "current_node": "b",
        "mapping": {
            "a": {"parent": None, "message": {
                "author": {"role": "user"}, "create_time": 1614852000,
                "content": {"content_type": "text", "parts": ["Which boat?"]}}},
            "b": {"parent": "a", "message": {
                "author": {"role": "assistant"}, "create_time": 1614852060,
                "content": {"content_type": "text", "parts": ["A small one."]}}},
        },
    }
]  # fmt: skip
CLAUDE = [
    {"name": "Tea", "created_at": "2024-03-04T10:00:00Z", "chat_messages": [
        {"sender": "human", "created_at": "2024-03-04T10:00:00Z", "text": "Which tea?"},
        {"sender": "assistant", "created_at": "2024-03-04T10:01:00Z", "text": "Green tea."}]}
]  # fmt: skip
WHATSAPP = "[04.03.21, 10:00:00] Ada: Where is the boat?\n[04.03.21, 10:01:00] Ben: In the shed.\n"


class Crashed(Exception):
    """Stands for the end of the process."""


def telegram(number: int = 300) -> bytes:
    rows = [
        {
            "id": at, "type": "message", "date_unixtime": str(1614852000 + 60 * at),
            "from": "Ben" if at % 2 else "Ada", "from_id": "user42" if at % 2 else "user17",
            "text": FACT if at == 7 else f"Line {at} about rowing and supper.",
        }
        for at in range(number)
    ]  # fmt: skip
    return json.dumps({"name": "Ben", "type": "personal_chat", "id": 42, "messages": rows}).encode()


def packed(name: str, body: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("readme.html", "hello")
        archive.writestr(name, body)
    return out.getvalue()


@pytest.fixture
def app_options() -> dict[str, Any]:
    return {"context_window": WINDOW, "max_output": 1_000}


def runner_of(guest: Visit, crash_point: CrashPoint = ignore_crash_point) -> ImportRunner:
    app = guest.app
    importer = PastImporter(store=app.stores.past_imports, eraser=app.erasure, crash_point=crash_point)
    reader = ExportFiles(clock=app.clock, timezone=app.settings.timezone)
    return ImportRunner(app.stores.import_files, importer, reader, crash_point=crash_point)


async def upload(guest: Visit, body: bytes, mark: str = "a") -> None:
    files = guest.app.stores.import_files
    file = await files.begin(guest.session_id, size=len(body), mark=mark)
    for start in range(0, len(body), PIECE_BYTES):
        assert await files.add_piece(file, start, body[start : start + PIECE_BYTES]) is not None


async def state_of(guest: Visit) -> ImportFile:
    file = await guest.app.stores.import_files.find(guest.session_id)
    assert file is not None
    return file


async def imported(guest: Visit, body: bytes) -> ImportFile:
    await upload(guest, body)
    runner = runner_of(guest)
    assert await runner.run_next()
    file = await state_of(guest)
    if file.state == "ready":
        assert await guest.app.stores.import_files.start(file, me="")
        assert await runner.run_next()
    return await state_of(guest)


@pytest.mark.parametrize(
    ("body", "source", "messages"),
    [
        (telegram(), "telegram", 300),
        (json.dumps(CHATGPT).encode(), "chatgpt", 2),
        (packed("export/conversations.json", json.dumps(CHATGPT).encode()), "chatgpt", 2),
        (json.dumps(CLAUDE).encode(), "claude", 2),
        (packed("conversations.json", json.dumps(CLAUDE).encode()), "claude", 2),
        (WHATSAPP.encode(), "whatsapp", 2),
        (packed("_chat.txt", WHATSAPP.encode()), "whatsapp", 2),
    ],
)
async def test_upload_is_recognised_and_imported(
    guest: Visit, body: bytes, source: str, messages: int
) -> None:
    await upload(guest, body)
    assert (await state_of(guest)).state == "looking"
    runner = runner_of(guest)
    assert await runner.run_next()
    file = await state_of(guest)
    assert file.found is not None
    assert (file.state, file.found.source, file.found.messages) == ("ready", source, messages)
    assert file.found.first_at is not None
    assert await guest.one("SELECT count(*) FROM past_imports") == 0
    assert not await runner.run_next()
    assert await guest.app.stores.import_files.start(file, me="")
    assert await runner.run_next()
    file = await state_of(guest)
    assert (file.state, file.stored) == ("done", messages)
    assert await guest.one("SELECT count(*) FROM import_pieces") == 0
    [made] = await guest.app.stores.past_imports.list_imports(guest.session_id)
    assert (made.source, made.messages, made.is_whole) == (source, messages, True)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0", "unknown_kind"),
        (b"hello, there is no chat in here", "unknown_kind"),
        (b'{"name": "x"}', "unknown_kind"),
        (b"   ", "empty"),
        (b'{"type": "personal_chat", "messages": []}', "unreadable"),
        (b'{"messages": ' + b"[" * 200_000, "unreadable"),
        (b"[" * 200_000, "unreadable"),
        (telegram()[:-900], "unreadable"),
        (packed("photo.jpg", b"x"), "unknown_kind"),
        (packed("conversations.json", telegram())[:-400], "unknown_kind"),
    ],
)
async def test_hostile_file_is_refused_with_a_code(guest: Visit, body: bytes, error: str) -> None:
    file = await imported(guest, body)
    assert (file.state, file.error) == ("failed", error)
    assert await guest.one("SELECT count(*) FROM import_pieces") == 0
    assert await guest.one("SELECT count(*) FROM past_imports") == 0


async def test_zip_bomb_is_refused_before_it_is_unpacked(
    guest: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.adapters.past.recognise.MOST_UNPACKED_BYTES", 2**20)
    file = await imported(guest, packed("conversations.json", b" " * 2**21))
    assert (file.state, file.error) == ("failed", "packed_too_large")


@pytest.mark.parametrize("point", ["import_looked", "mid_import", "import_stored"])
async def test_import_resumes_after_a_kill(guest: Visit, point: str) -> None:
    def crash(name: str) -> None:
        if name == point:
            raise Crashed

    await upload(guest, telegram(5_000))
    if point != "import_looked":
        await runner_of(guest).run_next()
        await guest.app.stores.import_files.start(await state_of(guest), me="")
    for _ in range(2):
        with pytest.raises(Crashed):
            await runner_of(guest, crash).run_next()
        assert not await runner_of(guest).run_next()
        await guest.app.pool.execute("UPDATE import_files SET leased_until = now() - interval '1 second'")
    assert await runner_of(guest).run_next()
    if point == "import_looked":
        assert await guest.app.stores.import_files.start(await state_of(guest), me="")
        await runner_of(guest).run_next()
    assert (await state_of(guest)).state == "done"
    assert await guest.one("SELECT messages FROM past_imports") == 5_000
    assert await guest.one("SELECT count(*) FROM past_imports") == 1


async def test_cancelled_import_leaves_no_message(guest: Visit) -> None:
    await upload(guest, telegram())
    await runner_of(guest).run_next()
    file = await state_of(guest)
    await guest.app.stores.import_files.start(file, me="")
    files = guest.app.stores.import_files
    app = guest.app
    importer = PastImporter(store=app.stores.past_imports, eraser=app.erasure, crash_point=ignore_crash_point)

    class Cancelling(ExportFiles):
        """Reader during whose work the person cancels."""

        def read(self, *given: Any, **more: Any) -> Any:
            yield from super().read(*given, **more)
            cancelled.append(True)

    cancelled: list[bool] = []
    reader = Cancelling(clock=app.clock, timezone="UTC")
    runner = ImportRunner(files, importer, reader, crash_point=ignore_crash_point)
    original = files.finish

    async def finish(*given: Any, **more: Any) -> bool:
        await files.delete(file)
        return await original(*given, **more)

    object.__setattr__(files, "finish", finish)
    try:
        assert await runner.run_next()
    finally:
        object.__delattr__(files, "finish")
    assert cancelled
    assert await guest.one("SELECT count(*) FROM past_imports WHERE digest IS NOT NULL") == 0
    assert await guest.one("SELECT count(*) FROM entry_rows WHERE words LIKE '%Zanzibarine%'") == 0


async def test_upload_resumes_where_it_was_interrupted(guest: Visit) -> None:
    files, body = guest.app.stores.import_files, b"x" * (2 * PIECE_BYTES + 5)
    file = await files.begin(guest.session_id, size=len(body), mark="a")
    assert await files.add_piece(file, 0, body[:PIECE_BYTES]) == PIECE_BYTES
    for start in (0, 2 * PIECE_BYTES, PIECE_BYTES + 1):
        assert await files.add_piece(file, start, b"y" * 5) == PIECE_BYTES
    again = await files.begin(guest.session_id, size=len(body), mark="a")
    assert (again.id, again.received) == (file.id, PIECE_BYTES)
    assert await files.add_piece(again, PIECE_BYTES, b"z" * (PIECE_BYTES + 6)) == PIECE_BYTES
    other = await files.begin(guest.session_id, size=len(body), mark="b")
    assert (other.id != file.id, other.received) == (True, 0)
    assert await files.add_piece(file, PIECE_BYTES, b"z") is None


async def test_deployment_receives_a_bounded_number_of_files(
    guest: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.adapters.postgres.memory.import_files.MOST_FILES", 1)
    await guest.app.stores.import_files.begin(guest.session_id, size=5, mark="a")
    other = await visit(guest.app)
    with pytest.raises(TooManyImports):
        await guest.app.stores.import_files.begin(other.session_id, size=5, mark="a")
    assert await guest.app.stores.import_files.find(other.session_id) is None


async def test_everything_erases_an_upload(guest: Visit) -> None:
    await upload(guest, telegram())
    await guest.app.erasure.erase_everything(guest.session_id, actor="person")
    assert await guest.one("SELECT count(*) FROM import_pieces") == 0
    assert await guest.one("SELECT count(*) FROM import_files") == 0
