"""What delivery adds to answers, in the language of their chat."""

from __future__ import annotations

from collections.abc import Callable

from bot.telegram.desk import Desk, texts_of
from shared.adapters.postgres.telegram_places import PlaceRow

_SHOWN_TOOLS = frozenset({"search_memory", "recall"})


class PlaceWords:
    """`desk_of` tells by the bot's id whether its people are an operator's public."""

    def __init__(self, desk_of: Callable[[int], Desk | None]) -> None:
        self._desk_of = desk_of

    def stopped(self, place: PlaceRow) -> str:
        return texts_of(place).stopped

    def working(self, place: PlaceRow, tool: str) -> str | None:
        """Saving a note is nobody's business while an answer is written."""
        if tool == "organizing":
            return texts_of(place).summarising
        return None if tool not in _SHOWN_TOOLS else texts_of(place).busy

    def notice(self, place: PlaceRow, code: str, text: str) -> str:
        desk = self._desk_of(place.bot_id)
        public = desk is None or desk.public
        return texts_of(place).advice(code=code, advice=text, public=public)

    def document(self, place: PlaceRow) -> str:
        return texts_of(place).whole_answer
