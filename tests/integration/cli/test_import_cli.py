"""Messages of other programs at the terminal: imported, found, resumed and undone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from shared.adapters.postgres.db.connecting import open_connection
from shared.adapters.postgres.memory.recall import PostgresRecall
from shared.adapters.postgres.operations.invariants import check_invariants
from shared.cli.past.arguments import read_import_arguments
from shared.cli.past.importing import run_import
from shared.core.context.question import read_question
from shared.core.context.recall_query import RecallQuery
from shared.core.memory.recall import rank_passages
from shared.runtime import CrashPoint, ignore_crash_point
from tests.bench.recall.storing import make_searchable
from tests.kit.app_driver import Visit, visit
from tests.kit.audit import read_audit

ASKED = "Where is the bicycle of Zanzibarine?"
FACT = "The bicycle of Zanzibarine is in the cellar."
MESSAGES = 2_500


class Crashed(Exception):
    """Stands for the end of the process."""


def telegram(number: int = MESSAGES) -> dict[str, Any]:
    rows: list[Mapping[str, Any]] = [
        {
            "id": at, "type": "message", "date_unixtime": str(1614852000 + 60 * at),
            "from": "Ben" if at % 2 else "Ada", "from_id": "user42" if at % 2 else "user17",
            "text": FACT if at == 7 else f"Line {at} about rowing and supper.",
        }
        for at in range(number)
    ]  # fmt: skip
    return {"name": "Ben", "type": "personal_chat", "id": 42, "messages": rows}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "result.json"
    path.write_text(json.dumps(telegram()), encoding="utf-8")
    return path


async def imported(
    guest: Visit, *words: str, crash_point: CrashPoint = ignore_crash_point
) -> tuple[int, str]:
    said: list[str] = []
    url = guest.app.settings.database_url
    assert url is not None
    person = await guest.one(
        "SELECT p.public_id::text FROM contacts p JOIN sessions s ON s.contact_id = p.id WHERE s.id = $1",
        guest.session_id,
    )
    code = await run_import(
        read_import_arguments([*words, "--person", person]), database_url=url.get_secret_value(),
        settings=guest.app.settings, say=said.append, crash_point=crash_point,
    )  # fmt: skip
    return code, "\n".join(said)


async def past_session(guest: Visit) -> int:
    session: int = await guest.one("SELECT session_id FROM past_imports ORDER BY session_id DESC LIMIT 1")
    return session


async def recalled(guest: Visit) -> list[str]:
    await make_searchable(guest.app.pool, await past_session(guest))
    asked = read_question(ASKED)
    query = RecallQuery(
        session_id=guest.session_id, base_turn=0, words=asked.words, asked=asked.asked, asks=asked.asks,
        dictionary=asked.dictionary, automatic=True,
    )  # fmt: skip
    ranked = rank_passages(await PostgresRecall(guest.app.pool).search(query), asked)
    return [item.passage.text for item in ranked]


async def sound(guest: Visit) -> bool:
    url = guest.app.settings.database_url
    assert url is not None
    async with open_connection(url.get_secret_value()) as connection:
        assert await check_invariants(connection) == []
    return True


async def test_imported_message_is_recalled_by_its_person(guest: Visit, file: Path) -> None:
    await guest.ask("Hello!")
    code, said = await imported(guest, "telegram", str(file))
    assert code == 0
    assert f"{MESSAGES:,} messages of telegram, 2021-03-04 to 2021-03-06" in said
    assert (await recalled(guest))[0] == f"Ben: {FACT}"
    entries = [(entry.actor, entry.action, entry.about) for entry in await read_audit(guest.app.pool)]
    person = await guest.one(
        "SELECT p.public_id::text FROM contacts p JOIN sessions s ON s.contact_id = p.id WHERE s.id = $1",
        guest.session_id,
    )
    assert entries == [("command line", "person.import", person)]
    assert await guest.one(
        "SELECT archived_at IS NOT NULL FROM sessions WHERE id = $1", await past_session(guest)
    )
    assert await sound(guest)


async def test_import_after_a_new_conversation_is_recalled(guest: Visit, file: Path) -> None:
    await guest.ask("Hello!")
    await guest.app.stores.jobs.start_new_conversation(guest.session_id, fixed_tokens=0)
    assert (await imported(guest, "telegram", str(file)))[0] == 0
    assert (await recalled(guest))[0] == f"Ben: {FACT}"


async def test_import_that_was_stopped_goes_on_without_doubles(guest: Visit, file: Path) -> None:
    await guest.ask("Hello!")
    calls: list[str] = []

    def stop(name: str) -> None:
        calls.append(name)
        if len(calls) == 1:
            raise Crashed

    with pytest.raises(Crashed):
        await imported(guest, "telegram", str(file), crash_point=stop)
    stored = await guest.one("SELECT messages FROM past_imports")
    assert 0 < stored < MESSAGES
    assert "not whole" in (await imported(guest, "list"))[1]
    assert (await imported(guest, "telegram", str(file)))[0] == 0
    assert (await imported(guest, "telegram", str(file)))[0] == 0
    assert await guest.one("SELECT count(*) FROM past_imports") == 1
    session = await past_session(guest)
    assert await guest.one("SELECT messages FROM past_imports") == MESSAGES
    assert await guest.one("SELECT count(*) FROM entry_rows WHERE session_id = $1", session) == MESSAGES
    assert (
        await guest.one("SELECT count(DISTINCT words) FROM entry_rows WHERE session_id = $1", session)
        == MESSAGES
    )
    assert await sound(guest)


async def test_undone_import_is_erased_in_one_step(guest: Visit, file: Path) -> None:
    await guest.ask("Hello!")
    await imported(guest, "telegram", str(file))
    assert (await recalled(guest))[0] == f"Ben: {FACT}"
    import_id = await guest.one(
        "SELECT public_id::text FROM sessions WHERE id = $1", await past_session(guest)
    )
    assert await imported(guest, "undo", import_id) == (0, f"Undone: {MESSAGES:,} messages are erased.")
    assert await recalled(guest) == []
    assert await guest.one("SELECT count(*) FROM entry_rows WHERE words LIKE '%Zanzibarine%'") == 0
    assert await guest.one("SELECT count(*) FROM passages WHERE text LIKE '%Zanzibarine%'") == 0
    assert await guest.one("SELECT digest IS NULL FROM past_imports")
    assert (await imported(guest, "list"))[1] == "Nothing was imported for this person."
    assert (await imported(guest, "undo", import_id))[0] == 1
    assert await sound(guest)
    # The same file may come again.
    assert (await imported(guest, "telegram", str(file)))[0] == 0
    assert (await recalled(guest))[0] == f"Ben: {FACT}"
    assert await sound(guest)


async def test_erasure_of_everything_takes_imports_along(guest: Visit, file: Path) -> None:
    await guest.ask("Hello!")
    await imported(guest, "telegram", str(file))
    await guest.app.erasure.erase_everything(guest.session_id, "person")
    assert await guest.one("SELECT count(*) FROM entry_rows WHERE words LIKE '%Zanzibarine%'") == 0
    assert await guest.one("SELECT digest IS NULL FROM past_imports")
    assert await sound(guest)


async def test_summaries_of_an_import_are_stopped_and_resumed(guest: Visit, file: Path) -> None:
    await imported(guest, "telegram", str(file))
    assert "being summarised: 0 % for $0.00" in (await imported(guest, "list"))[1]
    import_id = await guest.one(
        "SELECT public_id::text FROM sessions WHERE id = $1", await past_session(guest)
    )
    assert (await imported(guest, "stop", import_id))[0] == 0
    assert "summaries stopped: 0 %" in (await imported(guest, "list"))[1]
    assert (await imported(guest, "summarise", import_id))[0] == 0
    assert "being summarised" in (await imported(guest, "list"))[1]
    assert (await imported(guest, "stop", "00000000-0000-0000-0000-000000000000"))[0] == 1
    assert await sound(guest)


async def test_import_of_another_person_is_not_found(guest: Visit, file: Path) -> None:
    await guest.ask("Hello!")
    await imported(guest, "telegram", str(file))
    import_id = await guest.one(
        "SELECT public_id::text FROM sessions WHERE id = $1", await past_session(guest)
    )
    other = await visit(guest.app)
    await other.ask("Hello!")
    assert (await imported(other, "undo", import_id))[0] == 1
    assert await recalled(other) == []


async def test_file_that_cannot_be_read_leaves_nothing(guest: Visit, tmp_path: Path) -> None:
    await guest.ask("Hello!")
    path = tmp_path / "result.json"
    path.write_text('{"messages": []}')
    code, said = await imported(guest, "telegram", str(path))
    assert (code, "there are no messages of telegram in the file" in said) == (1, True)
    assert (await imported(guest, "telegram", str(tmp_path / "none")))[0] == 1
    assert await guest.one("SELECT count(*) FROM past_imports") == 0
