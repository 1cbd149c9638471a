"""Files that other programs wrote, read as the opening process reads them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from shared.adapters.files.file_reading import read_file
from shared.adapters.files.sandbox_client import SandboxClient
from shared.core.values.files import Document, NotRead, Picture
from tests import kit

FOLDER = Path(kit.__file__).parent / "foreign_files"
FILES: list[dict[str, Any]] = json.loads((FOLDER / "index.json").read_text(encoding="utf-8"))


async def read(content: bytes, name: str) -> Picture | Document | NotRead:
    client = SandboxClient()
    return await read_file(content, name, opened=lambda *file: client.open(*file, sender="a"))


@pytest.mark.parametrize("one", FILES, ids=lambda one: str(one["name"]))
async def test_foreign_file_is_read(one: dict[str, Any]) -> None:
    found = await read((FOLDER / one["name"]).read_bytes(), one["name"])
    if one["pictures"]:
        assert isinstance(found, Picture)
        return
    assert isinstance(found, Document), found
    assert [text for text in one["words"] if text not in found.text] == [], found.text[:2_000]


def test_foreign_set_has_many_kinds_and_writers() -> None:
    assert len({Path(one["name"]).suffix for one in FILES}) >= 27
    assert len({one["writer"] for one in FILES}) >= 27
    assert {path.name for path in FOLDER.iterdir()} == {"index.json", *(one["name"] for one in FILES)}


@pytest.mark.control("S48")
async def test_packed_bomb_is_refused_and_not_unpacked() -> None:
    bomb = gzip.compress(bytes(200 * 1024 * 1024), compresslevel=1, mtime=0)
    for content in (bomb, gzip.compress(bomb, mtime=0), b"\x1f\x8b\x08" + bytes(40)):
        assert isinstance(await read(content, "bomb.gz"), NotRead)
