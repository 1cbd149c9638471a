"""The quiet note that older messages were summarised: with the next answer, never to a sleeping chat."""

from __future__ import annotations

from collections.abc import Callable

from bot.telegram.inbound.bot_context import BotContext, get_chat_texts
from bot.telegram.outbound.buttons import build_summary_buttons, is_setting_on
from bot.telegram.outbound.notifier import Notifier, get_chat_target
from shared.adapters.postgres.telegram.chats import ChatRow


class SummaryNotices:
    """`desk_of` and `voice_of` by the bot's id; None for a bot that is not ours now."""

    def __init__(
        self, desk_of: Callable[[int], BotContext | None], voice_of: Callable[[int], Notifier | None]
    ) -> None:
        self._desk_of = desk_of
        self._voice_of = voice_of

    async def send_after_answer(self, place: ChatRow) -> None:
        """Raises StorageUnavailable. A note is noted before it is said: rather none than two."""
        desk, voice = self._desk_of(place.bot_id), self._voice_of(place.bot_id)
        if desk is None or voice is None or desk.public:
            return
        summary = await desk.stores.telegram_chats.newest_summary(place.session_id)
        if summary is None:
            return
        now = await desk.stores.telegram_chats.place(place.address_id)
        noted = int(now.settings.get("noted") or 0) if now is not None else 0
        if now is None or summary.link_id <= noted:
            return
        await desk.stores.telegram_chats.change_settings(place.address_id, {"noted": summary.link_id})
        if is_setting_on(now, "notices"):
            words = get_chat_texts(now).say("summarised", count=summary.messages)
            await voice.send(
                get_chat_target(now), words, keyboard=build_summary_buttons(now, summary.link_id), silent=True
            )
