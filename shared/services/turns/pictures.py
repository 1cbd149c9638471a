"""Pictures of a turn: their bytes for the model, and descriptions that replace them in later requests.

Descriptions are made after the answer is stored, so that the person need not wait. A later turn or job makes
those that a crash prevented.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import structlog

from shared.core.compaction.next_ledger import json_objects
from shared.core.context.prompts import PICTURE_SCHEMA, describe_picture
from shared.core.session.session import Entry
from shared.core.session.turns import Caps, Described, Spending
from shared.core.values.errors import EvertalkError, ModelError
from shared.core.values.files import Attached
from shared.core.values.messages import Block, Image, Message, Text, text_of
from shared.core.values.money import worst_case_micro
from shared.core.values.tokens import estimate_blocks
from shared.ports import ChatModel, ModelCard, ModelRequest, PictureContent, SystemPart, TokenCounter
from shared.runtime import BackgroundTasks
from shared.services.turns.spend_tracker import SpendStore, build_spending, list_spending

log = structlog.get_logger(__name__)

DESCRIPTION_TOKENS = 120
"""Most output tokens for the description of one picture."""
DESCRIPTION_CHARS = 300
"""Most characters of a stored description; the rest is cut."""
LOOK_SECONDS = 60.0
"""Seconds for describing one picture, and for waiting for a running description."""
DRAIN_SECONDS = 2.0
"""Seconds to wait for running descriptions when the process ends; later turns make those that are missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureOwner:
    """Session and contact that a description is booked on, and the model that answers the session."""

    session_id: int
    contact_id: int
    chat_model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UndescribedPictures:
    """Attachment ids of one turn's pictures without a description; `text` is the message that they came
    with.
    """

    owner: PictureOwner
    turn: int
    ids: tuple[int, ...]
    text: str


class PictureStore(Protocol):
    """Store of pictures and their descriptions.

    The loading methods return values by attachment id; deleted pictures, and pictures without a description,
    are left out. `describe` stores a description and its cost, and settles its reservation. `list_attached`
    returns files in the order of `ids`.
    """

    async def load_pictures(self, ids: Sequence[int]) -> dict[int, PictureContent]: ...
    async def load_descriptions(self, ids: Sequence[int]) -> dict[int, str]: ...
    async def describe(self, described: Described) -> None: ...
    async def list_attached(self, ids: Sequence[int]) -> tuple[Attached, ...]: ...


class PictureService:
    """Loader of pictures, which also has them described in the background. Close it before the stores."""

    def __init__(
        self,
        *,
        store: PictureStore,
        model: ChatModel,
        counter: TokenCounter,
        spend: SpendStore,
        caps: Caps,
        summary_model: str,
    ) -> None:
        self._store = store
        self._model = model
        self._counter = counter
        self._spend = spend
        self._caps = caps
        self._summary_model = summary_model
        self._tasks = BackgroundTasks()
        self._looking: dict[int, asyncio.Task[None]] = {}
        """Running description tasks by attachment id."""

    async def close(self) -> None:
        """Wait up to `DRAIN_SECONDS` for running descriptions; unfinished ones are cancelled."""
        await self._tasks.drain(DRAIN_SECONDS)

    async def list_files(self, ids: Sequence[int]) -> tuple[Attached, ...]:
        """Return the stored files with these attachment ids, as clients receive them; deleted files are left
        out.
        """
        return await self._store.list_attached(ids)

    async def load_pictures(self, blocks: Iterable[Block]) -> dict[int, PictureContent]:
        """Return bytes and descriptions of the pictures among the blocks, by attachment id; deleted pictures
        are left out.

        Without pictures, nothing is read from the database.
        """
        ids = [block.attachment_id for block in blocks if isinstance(block, Image)]
        return await self._store.load_pictures(ids) if ids else {}

    def describe_later(self, unseen: UndescribedPictures, *, then: Callable[[], Awaitable[None]]) -> None:
        """Have a model describe pictures in the background and store that with its cost; then await `then`.

        `then` is awaited even if describing fails.
        """
        task = self._tasks.start(self._describe_then(unseen, then))
        for attachment_id in unseen.ids:
            self._looking[attachment_id] = task
        task.add_done_callback(lambda ended: self._forget(unseen.ids, ended))

    async def with_descriptions(self, entries: Sequence[Entry], *, whose: PictureOwner) -> tuple[Entry, ...]:
        """Return the entries with descriptions of their pictures; missing ones are made by a model and stored
        first.

        Waits up to 60 seconds for each running description. A picture that cannot be described gets an empty
        description. Costs are booked on `whose`. If no description is missing, nothing is read or called.
        """
        lacking = _list_undescribed(entries, whose)
        if not lacking:
            return tuple(entries)
        ids = [attachment_id for unseen in lacking for attachment_id in unseen.ids]
        await self._wait_for_running(ids)
        known = await self._store.load_descriptions(ids)
        for unseen in lacking:
            left = tuple(one for one in unseen.ids if one not in known)
            if left:
                await self._describe(replace(unseen, ids=left))
        return _with_descriptions(entries, await self._store.load_descriptions(ids))

    async def _wait_for_running(self, ids: Iterable[int]) -> None:
        running = {task for one in ids if (task := self._looking.get(one)) is not None}
        if running:
            await asyncio.wait(running, timeout=LOOK_SECONDS)

    def _forget(self, ids: Iterable[int], ended: asyncio.Future[None]) -> None:
        for attachment_id in ids:
            if self._looking.get(attachment_id) is ended:
                del self._looking[attachment_id]

    async def _describe_then(self, unseen: UndescribedPictures, then: Callable[[], Awaitable[None]]) -> None:
        try:
            await self._describe(unseen)
        finally:
            await then()

    async def _describe(self, unseen: UndescribedPictures) -> None:
        """Describe pictures and store the descriptions.

        Failures and timeouts are only logged, since a later turn or job retries.
        """
        try:
            for attachment_id, picture in (await self._store.load_pictures(unseen.ids)).items():
                if not picture.description:
                    async with asyncio.timeout(LOOK_SECONDS):
                        await self._look(unseen, attachment_id, picture)
        except (EvertalkError, TimeoutError) as error:
            code = error.code if isinstance(error, EvertalkError) else "timeout"
            log.info(
                "picture_description_failed", session_id=unseen.owner.session_id, ids=unseen.ids, code=code
            )

    async def _look(self, unseen: UndescribedPictures, attachment_id: int, picture: PictureContent) -> None:
        """Store a one-sentence description of a picture by a model, with its cost.

        If no model accepts pictures, or the model refuses, the description quotes the message. Raises
        ModelError, after storing the cost, if the model fails.
        """
        card = await self._find_seeing_model(unseen.owner.chat_model)
        said, spent, reservation_id = "", list[Spending](), None
        failure: ModelError | None = None
        if card is not None:
            about = (unseen.owner.session_id, unseen.turn)
            request = _request(card, attachment_id, picture, about=about)
            reservation_id = await self._reserve(unseen.owner, request, card)
            try:
                reply = await self._model.reply(request)
            except ModelError as error:
                failure = error
                spent = [build_spending(usage, card.name, card, aborted=True) for usage in error.aborted]
            else:
                spent = list_spending(reply, card)
                said = read_description(text_of(reply.blocks))
        later = failure is not None and failure.transient
        said = "" if later else said or _describe_from_text(unseen.text)
        described = Described(
            attachment_id=attachment_id, description=said,
            session_id=unseen.owner.session_id, contact_id=unseen.owner.contact_id, turn=unseen.turn,
            spent=tuple(spent), reservation_id=reservation_id,
        )  # fmt: skip
        await self._store.describe(described)
        if failure is not None:
            raise failure

    async def _reserve(self, whose: PictureOwner, request: ModelRequest, card: ModelCard) -> int | None:
        if card.prices is None:
            return None
        blocks = [block for message in request.messages for block in message.blocks]
        tokens = round(card.token_factor * estimate_blocks(blocks, self._counter.count_tokens))
        micro = worst_case_micro(tokens, DESCRIPTION_TOKENS, card.prices)
        return await self._spend.reserve(whose.session_id, micro, caps=self._caps) if micro else None

    async def _find_seeing_model(self, chat_model: str) -> ModelCard | None:
        """Return the summary model's card if it accepts pictures, else the chat model's; None if neither
        accepts them.
        """
        for name in dict.fromkeys((self._summary_model, chat_model)):
            card = await self._model.load_card(name)
            if "images" in card.capabilities:
                return card
        return None


def _request(
    card: ModelCard, attachment_id: int, picture: PictureContent, *, about: tuple[int, int]
) -> ModelRequest:
    image = Image(attachment_id=attachment_id, mime=picture.mime)
    as_json = "json" in card.capabilities
    return ModelRequest(
        model=card.name,
        system=(SystemPart(text="You describe pictures."),),
        messages=(Message(role="user", blocks=(image, Text(text=describe_picture(as_json=as_json)))),),
        max_output_tokens=DESCRIPTION_TOKENS,
        json_schema=PICTURE_SCHEMA if as_json else None,
        pictures={attachment_id: picture},
        about=about,
    )


def read_description(answer: str) -> str:
    """Return the description in a model's answer, which may be JSON, cut-off JSON or text; at most 300
    characters.
    """
    told = (raw["description"] for raw in json_objects(answer) if isinstance(raw.get("description"), str))
    return " ".join(next(told, _cut_off(answer)).split())[:DESCRIPTION_CHARS]


def _cut_off(answer: str) -> str:
    """Return the beginning of `description` in cut-off JSON; any other answer unchanged."""
    begun = _BEGUN.match(answer)
    if begun is None:
        return answer
    rest = _HALF_ESCAPE.sub("", answer[begun.end() :])
    try:
        return str(json.loads(f'"{rest}"', strict=False))
    except ValueError:
        return rest


_BEGUN = re.compile(r'\A\s*\{\s*"description"\s*:\s*"')
_HALF_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?\Z")


def find_undescribed(
    entries: Sequence[Entry], *, whose: PictureOwner, turn: int
) -> UndescribedPictures | None:
    """Return the pictures without a description in the person's messages of one turn; None if there are none.

    `whose` becomes the owner on whom the descriptions will be booked.
    """
    said = (entry for entry in entries if entry.turn == turn and entry.author == "person")
    mine = [block for entry in said for block in entry.blocks]
    ids = dict.fromkeys(
        block.attachment_id for block in mine if isinstance(block, Image) and not block.description
    )
    return UndescribedPictures(owner=whose, turn=turn, ids=tuple(ids), text=text_of(mine)) if ids else None


def _list_undescribed(entries: Sequence[Entry], whose: PictureOwner) -> list[UndescribedPictures]:
    turns = {
        entry.turn
        for entry in entries
        for block in entry.blocks
        if isinstance(block, Image) and not block.description
    }
    found = (find_undescribed(entries, whose=whose, turn=turn) for turn in sorted(turns))
    return [unseen for unseen in found if unseen is not None]


def _with_descriptions(entries: Sequence[Entry], known: Mapping[int, str]) -> tuple[Entry, ...]:
    def told(block: Block) -> Block:
        if not isinstance(block, Image) or block.description:
            return block
        return replace(block, description=known.get(block.attachment_id, ""))

    return tuple(replace(entry, blocks=tuple(map(told, entry.blocks))) for entry in entries)


def _describe_from_text(words: str) -> str:
    said = " ".join(words.split())[:120]
    return f"sent with the words “{said}”" if said else "sent without a word"
