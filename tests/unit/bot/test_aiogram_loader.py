"""aiogram is loaded small, and everything of it still works: in a process that has not loaded it before."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = """
import json, sys
from pydantic import BaseModel

usual = BaseModel.model_rebuild
import bot.__main__
assert "aiogram" not in sys.modules, "it is loaded late"
from bot.aiogram_loader import get_response_models, load_aiogram
load_aiogram()
assert BaseModel.model_rebuild == usual, "only aiogram's own models are rebuilt another way"

def all_of(model):
    for each in model.__subclasses__():
        yield each
        yield from all_of(each)

from aiogram.types import TelegramObject
from aiogram.methods import TelegramMethod
objects = [each for each in set(all_of(TelegramObject)) if each.__module__.startswith("aiogram.")]
methods = [each for each in set(all_of(TelegramMethod)) if each.__module__.startswith("aiogram.")]
found = {"objects": len(objects), "built": sum(each.__pydantic_complete__ for each in objects)}
"""
USE = """
from aiogram import methods as calls, types

raw = {"message_id": 7, "date": 1_700_000_000, "chat": {"id": 4, "type": "private"}, "text": "Hi",
       "from": {"id": 4, "is_bot": False, "first_name": "Ann"},
       "reply_to_message": {"message_id": 6, "date": 1_700_000_000, "chat": {"id": 4, "type": "private"},
                            "photo": [{"file_id": "f", "file_unique_id": "u", "width": 1, "height": 1}]}}
update = types.Update.model_validate({"update_id": 1, "message": raw})
poll = types.Poll.model_validate({"id": "p", "question": "?", "options": [], "total_voter_count": 0,
    "is_closed": False, "is_anonymous": True, "type": "regular", "allows_multiple_answers": False,
    "allows_revoting": False, "members_only": False})
call = calls.SendPhoto(chat_id=4, photo="file", reply_markup=types.ForceReply(force_reply=True))
answer = calls.Response[list[types.Message]].model_validate({"ok": True, "result": [raw]})
replied = update.message.reply_to_message
found["read"] = [replied.photo[-1].file_id, poll.question, call.reply_markup.force_reply,
                 answer.result[0].text]
found["json"] = update.message.model_dump_json(exclude_none=True)
"""
ALL = """
for each in (*objects, *methods):
    each.model_rebuild()
found["left"] = [each.__name__ for each in (*objects, *methods) if not each.__pydantic_complete__]
"""


def ask(*program: str) -> Any:
    command = [sys.executable, "-c", "".join((PROGRAM, *program, "print(json.dumps(found))"))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def loaded() -> Any:
    return ask(USE, ALL)


def test_loading_aiogram_builds_only_what_is_used(loaded: Any) -> None:
    """When this fails, aiogram has changed how it ends its import: the bot works, and is 100 MB larger."""
    assert loaded["objects"] > 300
    assert loaded["built"] < loaded["objects"] / 10


def test_what_was_left_out_builds_itself_when_it_is_used(loaded: Any) -> None:
    assert loaded["read"] == ["f", "?", True, "Hi"]
    assert json.loads(loaded["json"])["reply_to_message"]["photo"][0]["file_id"] == "f"


def test_every_model_of_aiogram_can_still_be_built(loaded: Any) -> None:
    assert loaded["left"] == []
