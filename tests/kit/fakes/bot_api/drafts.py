"""Native drafts: they live for 30 seconds in private chats only, and have a Stop button.

No source tells how Telegram words its refusal of a draft, or how many drafts it accepts: the fake has its own
wording, and drafts do not count towards the sending limits.
"""

from __future__ import annotations

from tests.kit.fakes.bot_api.calls import Call
from tests.kit.fakes.bot_api.chats import Chat, Draft
from tests.kit.fakes.bot_api.entities import Words, words_of
from tests.kit.fakes.bot_api.refusals import misuse
from tests.kit.fakes.bot_api.rich import checked_rich, plain
from tests.kit.fakes.bot_api.shapes import Json
from tests.kit.fakes.bot_api.world import World

LIFE_SECONDS = 30.0


def send_message_draft(world: World, call: Call) -> bool:
    return _drafted(world, call, words_of(call.params, may_be_empty=True), None)


def send_rich_message_draft(world: World, call: Call) -> bool:
    rich = checked_rich(call.params["rich_message"], draft=True)
    return _drafted(world, call, Words(text=plain(rich["blocks"])), rich)


def expire_drafts(chat: Chat, now: float) -> None:
    for thread, draft in list(chat.drafts.items()):
        if draft.expires_at <= now:
            del chat.drafts[thread]
            chat.saw("draft_gone", at=draft.expires_at, thread=thread or None, reason="expired")


def _drafted(world: World, call: Call, words: Words, rich: Json | None) -> bool:
    params = call.params
    chat = world.writable(call.bot, params["chat_id"])
    if chat.kind != "private":
        raise misuse("drafts can be sent only to private chats")
    if params["draft_id"] == 0:
        raise misuse("draft_id must be non-zero")
    thread = world.thread(call.bot, chat, params.get("message_thread_id"))
    now = world.clock.now()
    expire_drafts(chat, now)
    before = chat.drafts.get(thread or 0)
    chat.drafts[thread or 0] = Draft(
        draft_id=params["draft_id"],
        text=words.text,
        entities=list(words.entities),
        rich=rich,
        can_stop=bool(params.get("can_stop")),
        keep_on_stop=bool(params.get("keep_on_stop")),
        expires_at=now + LIFE_SECONDS,
        stopped=bool(before and before.draft_id == params["draft_id"] and before.stopped),
    )
    chat.saw("draft", at=now, thread=thread, draft_id=params["draft_id"], **words.named(), rich_message=rich)
    return True
