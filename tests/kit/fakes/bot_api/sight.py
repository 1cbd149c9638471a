"""Typed views of the screen that the fake reports: lines, drafts and toasts as a person sees them."""

from __future__ import annotations

from dataclasses import dataclass

from tests.kit.fakes.bot_api.shapes import Json


@dataclass(frozen=True, slots=True)
class Line:
    """One message on a chat's screen; `raw` is the fake's JSON of the message."""

    raw: Json

    @property
    def message_id(self) -> int:
        return int(self.raw["message_id"])

    @property
    def by_bot(self) -> bool:
        return bool(self.raw["by"] == "bot")

    @property
    def text(self) -> str:
        return str(self.raw.get("text") or self.raw.get("caption") or "")

    @property
    def entities(self) -> list[Json]:
        return list(self.raw.get("entities") or ())

    @property
    def thread(self) -> int | None:
        thread: int | None = self.raw["thread"]
        return thread

    @property
    def silent(self) -> bool:
        return bool(self.raw["silent"])

    @property
    def edited(self) -> bool:
        return bool(self.raw["edited"])

    @property
    def buttons(self) -> list[str]:
        rows = (self.raw.get("reply_markup") or {}).get("inline_keyboard") or []
        return [button["text"] for row in rows for button in row]

    @property
    def document(self) -> str | None:
        """The name of the message's file; None if the message holds no file."""
        return (self.raw.get("document") or {}).get("file_name")


@dataclass(frozen=True, slots=True)
class Screen:
    """A chat's screen as its people see it now: edits are applied, deleted messages are missing, live drafts
    are shown.
    """

    raw: Json

    @property
    def version(self) -> int:
        return int(self.raw["version"])

    @property
    def lines(self) -> list[Line]:
        return [Line(line) for line in self.raw["lines"] if not line["service"]]

    @property
    def answers(self) -> list[Line]:
        """The lines that the bot wrote."""
        return [line for line in self.lines if line.by_bot]

    @property
    def texts(self) -> list[str]:
        """The texts of the lines that the bot wrote."""
        return [line.text for line in self.answers]

    @property
    def drafts(self) -> list[Json]:
        return list(self.raw["drafts"])

    @property
    def is_typing(self) -> bool:
        return bool(self.raw["typing"])

    @property
    def notifications(self) -> int:
        """The number of notifications so far; silent messages, edits and drafts cause none."""
        return int(self.raw["notifications"])

    @property
    def pinned(self) -> list[int]:
        return list(self.raw["pinned"])

    @property
    def toasts(self) -> list[Json]:
        """The answers to pressed buttons, each with `person`, `text`, `alert` and `at`."""
        return list(self.raw["toasts"])
