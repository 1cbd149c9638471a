"""Messages become turns: the answer starts first, and a repeated batch reads and says nothing twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from aiogram.types import Update

from bot.telegram.client.calls import CallNotSent
from bot.telegram.client.session import create_bot
from bot.telegram.handlers.dispatcher import BotDispatcher
from bot.telegram.handlers.message_handlers import MessageHandlers
from bot.telegram.inbound.media_files import CannotRead, FileResult
from bot.telegram.inbound.message_batching import MessageBatch
from bot.telegram.inbound.updates import IncomingMessage, Media, QuotedMessage
from bot.telegram.texts import get_chat_texts, get_texts
from shared.adapters.postgres.telegram.chats import ChatRow, MessageRow
from shared.core.session.turns import Edited, EditResult, Inbound
from shared.core.values.errors import SessionMoved, StorageUnavailable
from shared.core.values.recordings import Recording, RecordingLimits
from shared.services.voice.hearing import NotHeard
from tests.kit.fakes.bot_api import TOKEN
from tests.kit.telegram.updates import NOON, raw_message, spoken

VOICE = Recording(body=b"voice", mime="audio/ogg")
MISSING = CannotRead(reason="file_unavailable", name="plan.txt")
NOT_NOW = get_texts("en").say("not_now")
HEARD = get_texts("en").say("heard", words="Hello")


class Talk:
    """Stands for all that a handler reaches; `done` lists what was done, in order."""

    def __init__(self, **files: FileResult) -> None:
        self.done: list[str] = []
        self.files = files
        self.failures: dict[str, list[Exception]] = {}
        self.settings: dict[str, Any] = {}
        self.session_id = 3
        self.stored: list[Inbound] = []
        self.edited: EditResult = "same"
        self.limits = RecordingLimits(minutes=10, bytes=1_000_000)

    def did(self, deed: str) -> None:
        """Note a deed; raise the next error that the test has planned for it."""
        self.done.append(deed)
        if failures := self.failures.get(deed.partition(" ")[0]):
            raise failures.pop(0)

    @property
    def row(self) -> ChatRow:
        return ChatRow(
            address_id=5, bot_id=1, chat_id=42, thread_id=0, contact_id=2, session_id=self.session_id,
            session_public_id=UUID(int=4), title="", settings=dict(self.settings), unreachable=False,
        )  # fmt: skip

    # -- sessions, edits and stores

    async def accept_and_claim(self, inbound: Inbound) -> None:
        self.did("store")
        self.stored.append(inbound)

    async def break_off(self, _session_id: int, *, turn: int) -> None:
        self.did(f"interrupt {turn}")

    async def reword(self, *_: Any, **__: Any) -> Edited:
        self.did("reword")
        return Edited(result=self.edited, turn=7)

    async def wake(self, _session_id: int) -> bool:
        self.did("wake")
        return True

    async def list_parts(self, *_: Any) -> tuple[()]:
        return ()

    async def find_chat(self, _address_id: int) -> ChatRow:
        return self.row

    async def change_settings(self, _address_id: int, changes: dict[str, Any]) -> None:
        self.did(f"set {changes}")
        self.settings |= changes

    async def mark_handled(self, _bot_id: int, update_ids: Sequence[int], **_: Any) -> int:
        self.did("handled")
        return len(update_ids)

    # -- files and the chat

    async def store(self, session_id: int, **_: Any) -> int:
        return session_id

    async def read(self, media: Media, **_: Any) -> FileResult:
        self.did(f"read {media.file_id}")
        return self.files[media.file_id]

    def get_max_bytes(self, _kind: str) -> int:
        return 1_000_000

    async def hear(self, *_: Any, **__: Any) -> str:
        self.did("hear")
        return "Hello"

    async def send(self, _target: Any, text: str, **_: Any) -> None:
        self.did(f"say {text}")

    def expect_answer(self) -> AbstractContextManager[None]:
        return nullcontext()

    async def send_typing(self, _target: Any) -> CallNotSent:
        return CallNotSent(reason="test")

    async def name_after(self, *_: Any) -> None:
        return None


async def feed(talk: Talk, *messages: IncomingMessage, stored: MessageRow | None = None) -> None:
    """Pass a batch to its handler, which repeats it like the batcher while the database is away."""
    reach = cast("Any", talk)
    stores = SimpleNamespace(
        telegram_chats=reach, telegram_inbox=reach, attachments=reach, edits=reach, deliveries=reach
    )
    context = SimpleNamespace(identity=SimpleNamespace(bot_id=1), sender=reach, stores=stores, public=False)
    handlers = MessageHandlers(
        cast("Any", context), notifier=reach, files=reach, sessions=reach,
        dispatch=lambda _: talk.did("answer"), now=lambda: NOON + timedelta(seconds=1),
        start=asyncio.ensure_future, hearing=reach, topics=reach,
    )  # fmt: skip

    async def admit(handler: Callable[..., Any], event: Any, data: dict[str, Any]) -> Any:
        chat = talk.row
        return await handler(event, data | {"chat": chat, "texts": get_chat_texts(chat), "stored": stored})

    client = create_bot(TOKEN)
    dispatcher = BotDispatcher(client, routers=[handlers.build_router()], batch_admission=cast("Any", admit))
    kind = "edited_message" if messages[0].is_edited else "message"
    raw = raw_message(**({"edit_date": 1} if messages[0].is_edited else {}))
    update = Update.model_validate({"update_id": 1, kind: raw}, context={"bot": client})
    batch = MessageBatch(messages=tuple(replace(one, update=update) for one in messages))
    for _ in range(3):
        try:
            return await dispatcher.feed_batch(batch)
        except StorageUnavailable:
            continue
    raise AssertionError("the handler never succeeds")


def file(number: int, file_id: str, text: str = "", **changes: Any) -> IncomingMessage:
    media = Media(kind="voice" if file_id == "voice" else "document", file_id=file_id, unique_id=file_id)
    return spoken(number, text, media=media, **changes)


async def test_answer_starts_before_a_transcript_is_shown() -> None:
    talk = Talk(voice=VOICE)
    await feed(talk, file(1, "voice"))
    assert talk.done == ["read voice", "hear", "store", "answer", f"say {HEARD}"]


async def test_message_is_stored_before_an_unread_file_is_named() -> None:
    talk = Talk(plan=MISSING)
    await feed(talk, file(1, "plan", "My plan"))
    assert talk.done.index("store") < talk.done.index("answer") < talk.done.index(f"say {NOT_NOW}")


@pytest.mark.parametrize("failing", ["store", "set", "say"])
async def test_batch_repeated_in_an_outage_reads_and_says_nothing_twice(failing: str) -> None:
    talk = Talk(voice=VOICE, plan=MISSING)
    talk.failures = {failing: [StorageUnavailable("away"), StorageUnavailable("away")]}
    await feed(talk, file(1, "voice"), file(2, "plan"))
    for deed in ("read voice", "read plan", "hear", f"say {HEARD}", f"say {NOT_NOW}"):
        assert talk.done.count(deed) == 1, talk.done
    assert talk.settings["unheard"] == [1001, 1002]


async def test_failed_recording_is_reported_once_in_an_outage() -> None:
    talk = Talk(voice=VOICE)
    talk.failures = {"hear": [NotHeard("no"), NotHeard("no")], "handled": [StorageUnavailable("away")]}
    await feed(talk, file(1, "voice"))
    told = [deed for deed in talk.done if not deed.startswith("set")]
    assert [deed.partition(" ")[0] for deed in told] == ["read", "hear", "say", "handled", "handled"]
    assert talk.settings["unheard"] == [1001]


async def test_file_that_alone_cannot_be_read_is_named_once_in_an_outage() -> None:
    talk = Talk(plan=MISSING)
    talk.failures = {"handled": [StorageUnavailable("away")]}
    await feed(talk, file(1, "plan"))
    assert talk.done == ["read plan", f"say {NOT_NOW}", "handled", "handled"]


async def test_recordings_are_transcribed_once_when_their_session_moves() -> None:
    talk = Talk(voice=VOICE, memo=VOICE)
    quoted = QuotedMessage(author="Ada", text="", attachment=Media(kind="voice", file_id="memo"))

    class Moves(SessionMoved):
        """Error of a person who links another channel while the recording is read."""

        def __init__(self) -> None:
            super().__init__("session 3")
            talk.session_id = 4

    original = talk.accept_and_claim

    async def accept(inbound: Inbound) -> None:
        if inbound.session_id == 3:
            talk.did("moved")
            raise Moves
        await original(inbound)

    talk.accept_and_claim = accept  # type: ignore[method-assign]
    await feed(talk, file(1, "voice", quoted=quoted))
    assert talk.done.count("hear") == 2, "the recording and the one that was replied to"
    assert talk.done.count(f"say {HEARD}") == 1
    (inbound,) = talk.stored
    assert inbound.session_id == 4
    assert [getattr(block, "attachment_id", None) for block in inbound.more][:1] == [4]


async def test_list_for_retry_grows_in_one_statement() -> None:
    talk = Talk(plan=MISSING)
    talk.settings = {"unheard": [1000]}
    await feed(talk, file(1, "plan", "My plan"))
    assert [deed for deed in talk.done if deed.startswith("set")] == ["set {'unheard': [1000, 1001]}"]


async def test_read_message_empties_the_list_for_retry_unless_retry_read_it() -> None:
    talk = Talk()
    talk.settings = {"unheard": [1000]}
    await feed(talk, spoken(1, "Hello"))
    assert talk.settings["unheard"] is None
    talk.settings = {"unheard": [1000], "reread": [1000, 1001]}
    talk.files = {"voice": VOICE}

    async def find_message(*_: Any) -> None:
        return None

    cast("Any", talk).find_message = find_message
    await feed(talk, file(1, "voice"))
    assert talk.settings["unheard"] == [1000], "the other recording still waits"


@pytest.mark.parametrize("result", ["same", "unknown"])
async def test_edit_without_change_continues_the_interrupted_answer(result: EditResult) -> None:
    talk = Talk()
    talk.edited = result
    known = MessageRow(session_id=3, turn=7, seq=9, part=None)
    await feed(talk, spoken(1, "Look: https://example.org", is_edited=True), stored=known)
    assert talk.done == ["interrupt 7", "reword", "wake", "answer", "handled"]
