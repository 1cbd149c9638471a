"""Folder `knowledge/` of a workspace: its files, and each file's text as passages."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from shared.adapters.files.file_reading import decode_file, read_as, read_file
from shared.adapters.files.pdf_pages import BrokenPdf, extract_pages
from shared.adapters.files.safe_paths import NotReadable, has_plain_name, read_bytes, regular_file
from shared.adapters.files.sandbox_client import open_in_sandbox
from shared.adapters.files.text_decoding import NotText
from shared.adapters.files.workspace_files import workspace_path
from shared.core.context.agents import KNOWLEDGE_FOLDER, clean
from shared.core.memory.knowledge import Passage, split_csv, split_markdown, split_pages, split_text
from shared.core.values.files import Document

MOST_BYTES = 20 * 1024 * 1024
"""Maximum bytes of one knowledge file."""
MOST_FILES = 1_000
"""Maximum files of a knowledge folder; further ones are left out."""
LIST_SECONDS = 60.0
"""Maximum seconds for listing a knowledge folder."""
_KINDS = {
    ".md": split_markdown,
    ".markdown": split_markdown,
    ".txt": split_text,
    ".csv": split_csv,
}
_PDF = ".pdf"
_PAPERS = (
    ".docx", ".xlsx", ".pptx", ".odt", ".ods", ".odp", ".rtf", ".epub", ".doc", ".xls", ".ppt",
    ".html", ".htm", ".eml", ".msg", ".zip", ".ipynb", ".ics", ".vcf",
)  # fmt: skip
_READ = (*_KINDS, _PDF, *_PAPERS)
_NO_KIND = f"is none of {', '.join(_READ)}"


_REASONS = {
    "file_locked": "is locked by a password",
    "file_empty": "has no text",
    "file_unreadable": "is damaged or too large to be opened",
}


class UnreadableKnowledge(Exception):
    """Raised for a knowledge file that cannot be used; the message is the reason for an operator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shelf:
    """Files of a knowledge folder: SHA-256 by path, and a sentence for each unusable file."""

    files: dict[str, bytes]
    problems: tuple[str, ...] = ()


class KnowledgeFiles:
    """Reader of the knowledge folders of agents' workspaces below one root."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def scan(self, folder: str) -> Shelf:
        """List the knowledge files of workspace `folder`. Raises TimeoutError after LIST_SECONDS."""
        async with asyncio.timeout(LIST_SECONDS):
            return await asyncio.to_thread(build_shelf, self._folder(folder))

    async def read_passages(self, folder: str, path: str) -> tuple[Passage, ...]:
        """Return the passages of the file at `path` below `knowledge/`. Raises UnreadableKnowledge."""
        return await split_passages(path, await asyncio.to_thread(self._content, folder, path))

    def _content(self, folder: str, path: str) -> bytes:
        root = self._folder(folder).resolve()
        try:
            real, size = regular_file(root, root / path)
            if size > MOST_BYTES:
                raise NotReadable(_too_large(size))
            return read_bytes(real, most=MOST_BYTES)
        except (NotReadable, OSError) as error:
            raise UnreadableKnowledge(f"{path} {error}") from error

    def _folder(self, folder: str) -> Path:
        return workspace_path(self._root, folder) / KNOWLEDGE_FOLDER


async def split_passages(path: str, content: bytes) -> tuple[Passage, ...]:
    """Return the passages of a file; its name's suffix decides how it is read. Raises UnreadableKnowledge."""
    suffix = Path(path).suffix.lower()
    try:
        if suffix == _PDF:
            return split_pages([clean(page) for page in await extract_pages(content)])
        if suffix in _PAPERS:
            return await _split_paper(path, content)
        if suffix not in _KINDS:
            raise ValueError(_NO_KIND)
        decoded = await decode_file(content, opened=open_in_sandbox)
        passages = await asyncio.to_thread(lambda: _KINDS[suffix](clean(decoded.text)))
        return _tell_doubt(passages, decoded.guessed)
    except NotText as error:
        raise UnreadableKnowledge(f"{path} is not a text") from error
    except (BrokenPdf, ValueError) as error:
        raise UnreadableKnowledge(f"{path} {error}") from error


async def _split_paper(path: str, content: bytes) -> tuple[Passage, ...]:
    """Return the passages of an office file, mail or archive.

    Raises ValueError, with the reason for an operator, if it has no text.
    """
    found = await read_file(content, path, opened=open_in_sandbox)
    if not isinstance(found, Document):
        raise ValueError(_REASONS.get(getattr(found, "reason", ""), "is not a text"))
    return await asyncio.to_thread(split_markdown, clean(found.text))


def build_shelf(folder: Path) -> Shelf:
    """List a knowledge folder without its hidden files and folders.

    Problems are part of the result, none is raised.
    """
    files: dict[str, bytes] = {}
    problems: list[str] = []
    if folder.is_symlink() and not folder.resolve().is_relative_to(folder.parent.resolve()):
        return Shelf(files={}, problems=(f"{KNOWLEDGE_FOLDER}/ leads out of the folder",))
    for number, path in enumerate(_find_files(folder, problems)):
        name = path.relative_to(folder).as_posix()
        if not has_plain_name(name):
            problems.append(f"{KNOWLEDGE_FOLDER}/ has a file whose name is no text: {name!a}")
            continue
        if number >= MOST_FILES:
            problems.append(f"{KNOWLEDGE_FOLDER}/ has more than {MOST_FILES:,} files: the rest is left out")
            break
        try:
            if path.suffix.lower() not in _READ:
                raise NotReadable(_NO_KIND)
            real, size = regular_file(folder.resolve(), path)
            if size > MOST_BYTES:
                raise NotReadable(_too_large(size))
            files[name] = hashlib.sha256(read_bytes(real, most=MOST_BYTES)).digest()
        except (NotReadable, OSError) as error:
            problems.append(f"{KNOWLEDGE_FOLDER}/{name} {error}")
    return Shelf(files=files, problems=tuple(problems))


def _find_files(folder: Path, problems: list[str]) -> Iterator[Path]:
    def unreadable(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            problems.append(f"{error.filename} cannot be read: {error.strerror}")

    for place, inner, names in os.walk(folder, onerror=unreadable):
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        yield from (Path(place) / name for name in sorted(names) if not name.startswith("."))


def _too_large(size: int) -> str:
    return f"has {size / 1024**2:,.0f} MB; {MOST_BYTES // 1024**2} MB is the most"


def _tell_doubt(passages: tuple[Passage, ...], guessed: str) -> tuple[Passage, ...]:
    """Return passages with the guessed encoding added to each heading; unchanged if `guessed` is empty."""
    if not guessed:
        return passages
    return tuple(
        replace(one, heading=" · ".join(filter(None, (one.heading, read_as(guessed))))) for one in passages
    )
