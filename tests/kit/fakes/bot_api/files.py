"""Files that people and bots have sent, by file id."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import PurePosixPath

from tests.kit.fakes.bot_api.shapes import Json, without_nones

MAX_DOWNLOAD = 20 * 1024 * 1024
MAX_KEPT_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    file_id: str
    unique_id: str
    folder: str
    name: str
    media_type: str
    size: int
    content: bytes
    """Content; it may be shorter than `size` says, so that a test need not carry 21 MB."""

    @property
    def path(self) -> str:
        return f"{self.folder}/{self.unique_id}{PurePosixPath(self.name).suffix}"

    def as_document(self) -> Json:
        return {
            "file_id": self.file_id,
            "file_unique_id": self.unique_id,
            "file_name": self.name,
            "mime_type": self.media_type,
            "file_size": self.size,
        }

    def as_photo(self) -> list[Json]:
        """Return the file as a photo in several sizes, the largest last."""
        base = {"file_id": self.file_id, "file_unique_id": self.unique_id, "file_size": self.size}
        return [{**base, "width": side, "height": side} for side in (90, 320, 800)]

    def as_voice(self, duration: int) -> Json:
        whole = self.as_document()
        del whole["file_name"]
        return {**whole, "duration": duration}

    def as_video_note(self, duration: int) -> Json:
        whole = self.as_voice(duration)
        del whole["mime_type"]
        return {**whole, "length": 240}

    def as_file(self) -> Json:
        return without_nones(
            file_id=self.file_id,
            file_unique_id=self.unique_id,
            file_size=self.size,
            file_path=self.path,
        )


class Files:
    def __init__(self) -> None:
        self._by_id: OrderedDict[str, StoredFile] = OrderedDict()
        self._by_path: dict[str, StoredFile] = {}
        self._kept = 0
        self._count = 0

    def keep(
        self, content: bytes, *, name: str, media_type: str, folder: str, size: int | None = None
    ) -> StoredFile:
        self._count += 1
        unique = hashlib.sha256(f"{self._count}:{name}".encode()).hexdigest()[:12]
        found = StoredFile(
            file_id=f"BQACAgIAAxk{self._count:06d}{unique}",
            unique_id=f"AgAD{unique}",
            folder=folder,
            name=name,
            media_type=media_type,
            size=len(content) if size is None else size,
            content=content,
        )
        self._by_id[found.file_id] = found
        self._by_path[found.path] = found
        self._kept += len(content)
        while self._kept > MAX_KEPT_BYTES:
            _, oldest = self._by_id.popitem(last=False)
            del self._by_path[oldest.path]
            self._kept -= len(oldest.content)
        return found

    def get(self, file_id: str) -> StoredFile | None:
        return self._by_id.get(file_id)

    def at(self, path: str) -> StoredFile | None:
        return self._by_path.get(path)
