"""What meets a person's eye: the lines of a chat's screen, its drafts, its toasts."""

from __future__ import annotations

from dataclasses import dataclass

from tests.kit.fakes.bot_api.shapes import Json


@dataclass(frozen=True, slots=True)
class Line:
    """One message on the screen; `raw` holds what has no name here."""

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
        """The file's name."""
        return (self.raw.get("document") or {}).get("file_name")


@dataclass(frozen=True, slots=True)
class Screen:
    """A chat as its people see it now: edits applied, what was deleted gone, live drafts shown."""

    raw: Json

    @property
    def version(self) -> int:
        return int(self.raw["version"])

    @property
    def lines(self) -> list[Line]:
        return [Line(line) for line in self.raw["lines"] if not line["service"]]

    @property
    def answers(self) -> list[Line]:
        """The bot's lines."""
        return [line for line in self.lines if line.by_bot]

    @property
    def texts(self) -> list[str]:
        """The texts of the bot's lines."""
        return [line.text for line in self.answers]

    @property
    def drafts(self) -> list[Json]:
        return list(self.raw["drafts"])

    @property
    def is_typing(self) -> bool:
        return bool(self.raw["typing"])

    @property
    def notifications(self) -> int:
        """How often the telephone rang: silent messages, edits and drafts do not count."""
        return int(self.raw["notifications"])

    @property
    def pinned(self) -> list[int]:
        return list(self.raw["pinned"])

    @property
    def toasts(self) -> list[Json]:
        """The answers to pressed buttons: `person`, `text`, `alert`, `at`."""
        return list(self.raw["toasts"])
