"""Storage of pictures and files that tools return.

The model sees pictures after the results; files go to the person with the answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from shared.core.values.messages import Image, Text
from shared.ports import ToolFailed, ToolFile, ToolImage

MOST_BYTES = 20 * 1024 * 1024
"""Most bytes of a picture that a tool returns."""

OpenPicture = Callable[[bytes], Awaitable[tuple[dict[str, Any] | None, bytes]]]
"""Function that opens a picture and returns its facts and a smaller version; the facts are None for other
data.
"""


class ToolAttachmentStore(Protocol):
    """Store of pictures and files of a session; returns the attachment's id.

    The same bytes are stored once per session; files of tools count as the same only with the same name.
    """

    async def store(
        self, session_id: int, *, body: bytes, mime: str, name: str = "", description: str = ""
    ) -> int: ...
    async def store_file(self, session_id: int, file: ToolFile) -> int: ...


class ToolImageService:
    """Storage of pictures and files that tools return, as blocks that follow the tool results."""

    def __init__(self, store: ToolAttachmentStore, open_picture: OpenPicture) -> None:
        self._store = store
        self._open = open_picture

    async def store_image(self, session_id: int, image: ToolImage, *, by: str) -> tuple[Image, str]:
        """Store a picture of a tool; return its block, and the line about it for the tool result.

        `by` is the name of the tool. Raises ToolFailed if the picture is larger than 20 MiB or cannot be
        opened.
        """
        if len(image.body) > MOST_BYTES:
            raise ToolFailed("A picture was returned that is too large to be shown.")
        head, body = await self._open(image.body)
        if head is None or not body:
            raise ToolFailed("A picture was returned that cannot be opened.")
        size = f"{head['width']}×{head['height']}"
        told = f"a picture of {size} that {by} returned"
        mime = str(head["mime"])
        attachment_id = await self._store.store(
            session_id, body=body, mime=mime, name=f"{by}.{mime.rpartition('/')[2]}", description=told
        )
        block = Image(attachment_id=attachment_id, mime=mime, description=told)
        return block, f"[A picture of {size} was returned; it is shown after the results.]"

    async def store_file(self, session_id: int, file: ToolFile) -> Text:
        """Store a file for the person; return the block that follows the results.

        The turn's answer announces the file.
        """
        attachment_id = await self._store.store_file(session_id, file)
        return Text(text=f"[{file.name} goes to the person with your answer.]", attachment_id=attachment_id)
