"""Documents, photos and albums that a bot sends, and files that it downloads."""

from __future__ import annotations

from pathlib import PurePosixPath

from tests.kit.fakes.bot_api.calls import Call
from tests.kit.fakes.bot_api.entities import words_of
from tests.kit.fakes.bot_api.files import MAX_DOWNLOAD, StoredFile
from tests.kit.fakes.bot_api.refusals import Refusal, misuse, stricter
from tests.kit.fakes.bot_api.sending import post
from tests.kit.fakes.bot_api.shapes import Json
from tests.kit.fakes.bot_api.wire import Upload
from tests.kit.fakes.bot_api.world import World

MAX_PHOTO = 10 * 1024 * 1024


def send_document(world: World, call: Call) -> Json:
    world.writable(call.bot, call.params["chat_id"])
    found = _file(world, call, call.params["document"], "documents")
    return post(world, call, {"document": found.as_document(), **_caption(call.params)})


def send_photo(world: World, call: Call) -> Json:
    world.writable(call.bot, call.params["chat_id"])
    found = _file(world, call, call.params["photo"], "photos")
    return post(world, call, {"photo": found.as_photo(), **_caption(call.params)})


def send_voice(world: World, call: Call) -> Json:
    """Send a voice note; refused unless it is Opus in Ogg, since Telegram plays nothing else."""
    world.writable(call.bot, call.params["chat_id"])
    found = _file(world, call, call.params["voice"], "voice")
    if not found.content.startswith(b"OggS"):
        raise stricter("this is no voice note")
    return post(world, call, {"voice": found.as_voice(3), **_caption(call.params)})


def send_media_group(world: World, call: Call) -> list[Json]:
    wanted = call.params["media"]
    if not 2 <= len(wanted) <= 10:
        raise misuse("group of media must include from 2 to 10 items")
    world.writable(call.bot, call.params["chat_id"])
    group = str(world.number())
    contents: list[Json] = []
    for one in wanted:
        if one["type"] not in ("document", "photo"):
            raise stricter(f"a bot like ours sends no {one['type']}")
        found = _file(world, call, one["media"], f"{one['type']}s")
        shown = found.as_photo() if one["type"] == "photo" else found.as_document()
        contents.append({"media_group_id": group, one["type"]: shown, **_caption(one)})
    return [post(world, call, content) for content in contents]


def get_file(world: World, call: Call) -> Json:
    found = world.files.get(call.params["file_id"])
    if found is None:
        raise misuse("wrong file_id or the file is temporarily unavailable")
    if found.size > MAX_DOWNLOAD:
        raise misuse("file is too big")
    return found.as_file()


def _file(world: World, call: Call, wish: str, folder: str) -> StoredFile:
    if not wish.startswith("attach://"):
        stored = world.files.get(wish)
        if stored is None:
            raise misuse("wrong remote file identifier specified: can't unserialize it")
        return stored
    upload = call.uploads.get(wish.removeprefix("attach://"))
    if upload is None:
        raise misuse("there is no uploaded file of that name")
    _check_upload(upload, folder)
    media_type = "text/markdown" if PurePosixPath(upload.name).suffix == ".md" else upload.media_type
    return world.files.keep(upload.content, name=upload.name, media_type=media_type, folder=folder)


def _check_upload(upload: Upload, folder: str) -> None:
    if not upload.content:
        raise misuse("file must be non-empty")
    if folder == "photos" and len(upload.content) > MAX_PHOTO:
        raise Refusal("Photo is too big", violation=True)


def _caption(params: Json) -> Json:
    return words_of(params, caption=True, may_be_empty=True).named("caption", "caption_entities")
