"""Table of the methods that the fake knows; any other is answered like an unknown one."""

from __future__ import annotations

import inspect
from collections.abc import Callable

from tests.kit.fakes.bot_api import (
    business,
    chat_methods,
    drafts,
    guests,
    inline,
    media,
    profile_methods,
    sending,
)
from tests.kit.fakes.bot_api.calls import Call, Journal
from tests.kit.fakes.bot_api.refusals import Refusal, stricter
from tests.kit.fakes.bot_api.shapes import Json
from tests.kit.fakes.bot_api.webhooks import Reply
from tests.kit.fakes.bot_api.world import World

Handler = Callable[[World, Call], object]


def _send_message(world: World, call: Call) -> Json:
    if "business_connection_id" in call.params:
        return business.send_for_owner(world, call)
    return sending.send_message(world, call)


METHODS: dict[str, Handler] = {
    "getMe": profile_methods.get_me,
    "logOut": profile_methods.nothing_to_do,
    "close": profile_methods.nothing_to_do,
    "deleteWebhook": profile_methods.delete_webhook,
    "getWebhookInfo": profile_methods.get_webhook_info,
    "setMyCommands": profile_methods.set_my_commands,
    "getMyCommands": profile_methods.get_my_commands,
    "deleteMyCommands": profile_methods.delete_my_commands,
    "setMyDescription": profile_methods.set_my_description,
    "setMyShortDescription": profile_methods.set_my_short_description,
    "setChatMenuButton": profile_methods.set_chat_menu_button,
    "sendMessage": _send_message,
    "sendRichMessage": sending.send_rich_message,
    "editMessageText": sending.edit_message_text,
    "editMessageReplyMarkup": sending.edit_message_reply_markup,
    "stopMessageLiveLocation": sending.stop_message_live_location,
    "deleteMessage": sending.delete_message,
    "deleteMessages": sending.delete_messages,
    "sendChatAction": sending.send_chat_action,
    "setMessageReaction": sending.set_message_reaction,
    "answerCallbackQuery": sending.answer_callback_query,
    "answerInlineQuery": inline.answer_inline_query,
    "answerGuestQuery": guests.answer_guest_query,
    "getBusinessConnection": business.get_business_connection,
    "sendDocument": media.send_document,
    "sendPhoto": media.send_photo,
    "sendVoice": media.send_voice,
    "sendMediaGroup": media.send_media_group,
    "getFile": media.get_file,
    "sendMessageDraft": drafts.send_message_draft,
    "sendRichMessageDraft": drafts.send_rich_message_draft,
    "pinChatMessage": chat_methods.pin_chat_message,
    "unpinChatMessage": chat_methods.unpin_chat_message,
    "getChat": chat_methods.get_chat,
    "getChatMember": chat_methods.get_chat_member,
    "leaveChat": chat_methods.leave_chat,
    "createForumTopic": chat_methods.create_forum_topic,
    "editForumTopic": chat_methods.edit_forum_topic,
}
BUSINESS_METHODS = frozenset({"sendMessage", "getBusinessConnection"})
"""Methods that the fake can do for the owner of a business account."""


class Dispatcher:
    """Runner of checked calls, including those in responses to webhook posts."""

    def __init__(self, world: World, journal: Journal) -> None:
        self._world = world
        self._journal = journal

    async def run(self, call: Call) -> object:
        match call.method:
            case "getUpdates":
                return await call.bot.poller.get_updates(
                    call.params, webhook_active=call.bot.webhook is not None
                )
            case "setWebhook":
                return await profile_methods.set_webhook(self._world, call, self._reply_of(call))
        if "business_connection_id" in call.params and call.method not in BUSINESS_METHODS:
            raise stricter(f"this fake knows no {call.method} for an owner")
        found = METHODS[call.method](self._world, call)
        return await found if inspect.isawaitable(found) else found

    def _reply_of(self, registered: Call) -> Reply:
        async def reply(answer: Json) -> None:
            name = self._world.schema.method(str(answer.pop("method")))
            if name is None or name.startswith("get") or name in ("setWebhook", "deleteWebhook"):
                return
            record = self._journal.open(name, self._world.clock.now())
            record.bot, record.params = registered.bot.id, answer
            try:
                record.params = params = self._world.schema.checked(name, answer)
                await self.run(Call(method=name, bot=registered.bot, params=params, uploads={}))
                record.outcome, record.processed = "in_webhook", True
            except Refusal as refusal:
                record.status, record.outcome = refusal.status, "refused"
                record.description = refusal.description
                if refusal.violation:
                    self._journal.violated(record, refusal.description)

        return reply
