"""Tool `look_at_picture`: shows the model an older picture, of which the context has only a description."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from shared.core.context.agents import LOOK_AT_PICTURE
from shared.core.values.messages import Image
from shared.ports import ToolContext, ToolFailed, ToolOutput


class SessionPictureStore(Protocol):
    """Store of a session's pictures; returns a picture's media type, None if the session has no such
    picture.
    """

    async def find_picture(self, session_id: int, attachment_id: int) -> str | None: ...


class LookAtPictureTool:
    """Tool `look_at_picture`, which shows the model a picture of this conversation by its attachment id."""

    spec = LOOK_AT_PICTURE
    idempotent = True
    timeout_seconds = 5.0
    output_chars = 300

    def __init__(self, store: SessionPictureStore) -> None:
        self._store = store

    async def run(self, arguments: Mapping[str, Any], *, context: ToolContext) -> ToolOutput:
        number = int(arguments["picture"])
        mime = await self._store.find_picture(context.session_id, number)
        if mime is None:
            raise ToolFailed(f"There is no picture {number} in this conversation any more.")
        picture = Image(attachment_id=number, mime=mime)
        return ToolOutput(text=f"Picture {number} is shown after the results.", kept=(picture,))
