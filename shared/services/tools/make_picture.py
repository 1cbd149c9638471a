"""Tool `make_picture`: has a picture made from a description, within the caps, and sends it with
the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import structlog

from shared.core.session.turns import Caps, Spending
from shared.core.values.errors import CapReached, ContentRefused, ModelError, ModelRejectedRequest
from shared.core.values.files import clean_name
from shared.core.values.messages import ToolSpec
from shared.ports import ToolContext, ToolFailed, ToolFile, ToolOutput
from shared.services.turns.spend_tracker import SpendStore, SpendTracker
from shared.services.turns.tool_images import OpenPicture

log = structlog.get_logger(__name__)

MOST_CHARS = 4_000
"""Most characters of a picture's description."""
MAKE_PICTURE = ToolSpec(
    name="make_picture",
    description="Have a picture made from a description, and send it to the person. Each one costs money.",
    input_schema={
        "type": "object",
        "properties": {
            "description": {
                "type": "string", "minLength": 1, "maxLength": MOST_CHARS,
                "description": "what is to be seen, with its style, light and colours",
            },
            "name": {"type": "string", "maxLength": 60, "description": "a file name of a few words"},
        },
        "required": ["description"],
        "additionalProperties": False,
    },
)  # fmt: skip
"""Description of the tool `make_picture` for the model."""


class PictureMaker(Protocol):
    """Service that makes one picture from a description, and returns its unchecked bytes; raises
    ModelError.
    """

    model: str

    async def make(self, prompt: str, *, session: int | None = None) -> bytes: ...


class PictureLedger(Protocol):
    """Store that books the cost of a made picture on a session, its contact and its turn."""

    async def record_delegated(
        self, session_id: int, *, contact_id: int, turn: int, spent: Sequence[Spending], purpose: str
    ) -> None: ...


class MakePictureTool:
    """Tool `make_picture`, whose picture goes to the person with the answer.

    After a crash the call is not repeated, since the picture may have been paid for.
    """

    spec: ToolSpec = MAKE_PICTURE
    idempotent = False
    timeout_seconds = 200.0

    def __init__(
        self,
        maker: PictureMaker,
        open_picture: OpenPicture,
        *,
        spend: SpendStore,
        ledger: PictureLedger,
        caps: Caps,
        price_micro: int | None,
    ) -> None:
        """Set up the tool; `price_micro` is the price of one picture in micro-dollars, None if unknown."""
        self._maker = maker
        self._open = open_picture
        self._spend = spend
        self._ledger = ledger
        self._caps = caps
        self._price = price_micro

    def subject(self, arguments: Mapping[str, Any]) -> str:
        """Return the description, whose beginning clients may show while the tool runs."""
        return str(arguments.get("description", ""))

    async def run(self, arguments: Mapping[str, Any], *, context: ToolContext) -> ToolOutput:
        if context.address_id is None:
            raise ToolFailed("Pictures can be sent only in a conversation with a person.")
        head, body = await self._open(await self._make(str(arguments["description"]), context))
        if head is None or not body:
            raise ToolFailed("What came back is no picture.")
        mime = str(head["mime"])
        stem = clean_name(str(arguments.get("name") or "picture")).partition(".")[0] or "picture"
        file = ToolFile(
            name=f"{stem}.{mime.rpartition('/')[2]}", mime=mime, body=body,
            width=int(head["width"]), height=int(head["height"]),
        )  # fmt: skip
        return ToolOutput(files=(file,))

    async def _make(self, prompt: str, context: ToolContext) -> bytes:
        """Return the picture's bytes; the price is reserved before and recorded after. Raises ToolFailed.

        An interrupted call is recorded, too, since the service may have made the picture.
        """
        tracker = SpendTracker(self._spend, session_id=context.session_id, job_id=None, caps=self._caps)
        made = Spending(model=self._maker.model, known=True, cost_micro=self._price)
        try:
            async with tracker.hold_micro(self._price or 0) as pay:
                try:
                    picture = await self._maker.make(prompt, session=context.session_id)
                except ModelError as error:
                    pay([replace(made, known=False, aborted=True)] if error.aborted else [])
                    raise
                except asyncio.CancelledError:
                    pay([replace(made, known=False, aborted=True)])
                    raise
                pay([made])
        except CapReached as error:
            raise ToolFailed("A spending limit is reached. Do not try again today.") from error
        except (ContentRefused, ModelRejectedRequest) as error:
            raise ToolFailed("The service refuses this description.") from error
        except ModelError as error:
            log.warning("picture_failed", session_id=context.session_id, code=error.code, reason=str(error))
            raise ToolFailed("The service that makes pictures did not make one.") from error
        finally:
            if tracker.spent:
                await self._ledger.record_delegated(
                    context.session_id, contact_id=context.contact_id, turn=context.turn, spent=tracker.spent,
                    purpose="picture",
                )  # fmt: skip
        return picture
