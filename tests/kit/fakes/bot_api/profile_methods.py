"""Methods with which bots set commands, descriptions, menu button and webhook, and read them."""

from __future__ import annotations

import re

from tests.kit.fakes.bot_api.calls import Call
from tests.kit.fakes.bot_api.refusals import WEBHOOK_SET, misuse, too_many
from tests.kit.fakes.bot_api.shapes import Json, compact
from tests.kit.fakes.bot_api.webhooks import Reply, Webhook
from tests.kit.fakes.bot_api.world import World

COMMAND = re.compile(r"^[a-z0-9_]{1,32}$")
MAX_COMMANDS = 100
LANGUAGE = re.compile(r"^([a-z]{2})?$")


def get_me(world: World, call: Call) -> Json:
    return call.bot.me()


def nothing_to_do(world: World, call: Call) -> bool:
    return True


def set_my_commands(world: World, call: Call) -> bool:
    wanted = call.params["commands"]
    if len(wanted) > MAX_COMMANDS:
        raise misuse("BOT_COMMANDS_TOO_MUCH")
    for one in wanted:
        if not COMMAND.fullmatch(one["command"]):
            raise misuse("BOT_COMMAND_INVALID")
        if not 1 <= len(one["description"]) <= 256:
            raise misuse("BOT_COMMAND_DESCRIPTION_INVALID")
    call.bot.commands[_scope(world, call)] = wanted
    return True


def get_my_commands(world: World, call: Call) -> list[Json]:
    return call.bot.commands.get(_scope(world, call), [])


def delete_my_commands(world: World, call: Call) -> bool:
    call.bot.commands.pop(_scope(world, call), None)
    return True


def set_my_description(world: World, call: Call) -> bool:
    return _set_text(call, "description", most=512)


def set_my_short_description(world: World, call: Call) -> bool:
    return _set_text(call, "short_description", most=120)


def set_chat_menu_button(world: World, call: Call) -> bool:
    chat = call.params.get("chat_id", "")
    call.bot.menu_buttons[str(chat)] = call.params.get("menu_button", {"type": "default"})
    return True


async def set_webhook(world: World, call: Call, reply: Reply) -> bool:
    now = world.clock.now()
    if now < call.bot.webhook_set_at + 1:
        raise too_many(1)
    params, bot = call.params, call.bot
    if not params.get("url"):
        return await delete_webhook(world, call)
    unknown = set(params.get("allowed_updates", ())) - world.schema.updates
    if unknown:
        raise misuse(f"there is no update of the kind {min(unknown)!r}")
    if params.get("drop_pending_updates"):
        bot.inbox.clear()
    made = Webhook(params, bot.inbox, world.clock, reply)
    bot.webhook_set_at = now
    bot.inbox.allow(params.get("allowed_updates"))
    bot.poller.terminate(WEBHOOK_SET)
    before, bot.webhook = bot.webhook, made
    if before is not None:
        await before.close()
    return True


async def delete_webhook(world: World, call: Call) -> bool:
    before, call.bot.webhook = call.bot.webhook, None
    if before is not None:
        await before.close()
    if call.params.get("drop_pending_updates"):
        call.bot.inbox.clear()
    return True


def get_webhook_info(world: World, call: Call) -> Json:
    if call.bot.webhook is not None:
        found: Json = call.bot.webhook.info()
        return found
    return {"url": "", "has_custom_certificate": False, "pending_update_count": len(call.bot.inbox)}


def _set_text(call: Call, name: str, *, most: int) -> bool:
    text = call.params.get(name, "")
    if len(text) > most:
        raise misuse(f"bot {name.replace('_', ' ')} is too long")
    call.bot.texts[f"{name}:{call.params.get('language_code', '')}"] = text
    return True


def _scope(world: World, call: Call) -> str:
    scope = call.params.get("scope", {"type": "default"})
    language = call.params.get("language_code", "")
    if not LANGUAGE.fullmatch(language):
        raise misuse("LANG_CODE_INVALID")
    if "chat_id" in scope:
        world.readable(call.bot, scope["chat_id"])
    return compact([scope, language])
