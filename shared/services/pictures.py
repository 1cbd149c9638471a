"""Pictures of a turn: their bytes for the model that answers, and a sentence for all who come later."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol

import structlog

from shared.core.errors import CapReached, ModelError, StorageUnavailable
from shared.core.messages import Block, Image, Message, Text, text_of
from shared.core.prompts import describe_picture
from shared.core.tokens import estimate_blocks
from shared.ports import ChatModel, ModelCard, ModelRequest, Picture, SystemPart, TokenCounter
from shared.services.spending import Purse

log = structlog.get_logger(__name__)

DESCRIPTION_TOKENS = 120
DESCRIPTION_CHARS = 300


class PictureStore(Protocol):
    async def pictures(self, ids: Sequence[int]) -> dict[int, Picture]: ...
    async def describe(self, attachment_id: int, description: str) -> None: ...


class Pictures:
    def __init__(
        self, *, store: PictureStore, model: ChatModel, counter: TokenCounter, summary_model: str
    ) -> None:
        self._store = store
        self._model = model
        self._counter = counter
        self._summary_model = summary_model

    async def of_turn(self, blocks: Iterable[Block]) -> dict[int, Picture]:
        """By attachment; nothing is read for a turn without pictures."""
        ids = [block.attachment_id for block in blocks if isinstance(block, Image)]
        return await self._store.pictures(ids) if ids else {}

    async def describe(
        self, pictures: Mapping[int, Picture], *, words: str, chat_model: str, purse: Purse
    ) -> None:
        """One sentence per picture that has none yet; the person's words stand in where no model can see."""
        for attachment_id, picture in pictures.items():
            if picture.description:
                continue
            try:
                said = await self._said(attachment_id, picture, chat_model, purse)
                await self._store.describe(attachment_id, said or _by_words(words))
            except (ModelError, CapReached, StorageUnavailable) as error:
                log.info("picture_not_described", attachment_id=attachment_id, code=error.code)

    async def _said(self, attachment_id: int, picture: Picture, chat_model: str, purse: Purse) -> str:
        card = await self._seeing(chat_model)
        if card is None:
            return ""
        image = Image(attachment_id=attachment_id, mime=picture.mime)
        asked = Message(role="user", blocks=(image, Text(text=describe_picture())))
        request = ModelRequest(
            model=card.name,
            system=(SystemPart(text="You describe pictures."),),
            messages=(asked,),
            max_output_tokens=DESCRIPTION_TOKENS,
            pictures={attachment_id: picture},
        )
        reply = await purse.pay_for(
            partial(self._model.reply, request),
            input_tokens=round(card.token_factor * estimate_blocks(asked.blocks, self._counter.count)),
            output_tokens=DESCRIPTION_TOKENS,
            card=card,
        )
        return " ".join(text_of(reply.blocks).split())[:DESCRIPTION_CHARS]

    async def _seeing(self, chat_model: str) -> ModelCard | None:
        """The cheapest of our models that can look at pictures."""
        for name in dict.fromkeys((self._summary_model, chat_model)):
            card = await self._model.card(name)
            if "images" in card.capabilities:
                return card
        return None


def _by_words(words: str) -> str:
    said = " ".join(words.split())[:120]
    return f"sent with the words “{said}”" if said else "sent without a word"
