"""What delivery adds to answers, in the language of their chat."""

from __future__ import annotations

from collections.abc import Callable

from bot.telegram.inbound.bot_context import BotContext, get_chat_texts
from bot.telegram.texts import describe_work, explain_failure
from shared.adapters.postgres.telegram.chats import ChatRow

_HIDDEN_TOOLS = frozenset({"save_memory", "update_memory", "forget_memory"})


class ChatDeliveryTexts:
    """`desk_of` tells by the bot's id whether its people are an operator's public."""

    def __init__(self, desk_of: Callable[[int], BotContext | None]) -> None:
        self._desk_of = desk_of

    def stopped(self, place: ChatRow) -> str:
        return get_chat_texts(place).say("stopped")

    def working(self, place: ChatRow, tool: str, subject: str = "") -> str | None:
        """Saving a note is nobody's business while an answer is written."""
        texts = get_chat_texts(place)
        if tool == "organizing":
            return texts.say("summarising")
        if tool in _HIDDEN_TOOLS:
            return None
        return describe_work(texts, "mcp" if tool.startswith("mcp_") else tool, subject)

    def notice(self, place: ChatRow, code: str, text: str) -> str:
        desk = self._desk_of(place.bot_id)
        public = desk is None or desk.public
        return explain_failure(get_chat_texts(place), code=code, advice=text, public=public)

    def uncertain(self, place: ChatRow) -> str:
        return get_chat_texts(place).say("uncertain")

    def arrived(self, place: ChatRow) -> str:
        return get_chat_texts(place).say("arrived")

    def document(self, place: ChatRow) -> str:
        return get_chat_texts(place).say("whole_answer")
