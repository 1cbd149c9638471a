"""Compares two views of a chat's screen, and numbers its buttons; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["new", "edited", "buttons", "gone", "toast", "typing"]
_STOP = ":stop:"
"""Part of the callback data of the button below an answer that is being written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenMessage:
    """Message of the bot as it is now."""

    message_id: int
    text: str
    labels: tuple[str, ...] = ()
    silent: bool = False
    running: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenChange:
    kind: Kind
    bubble: ScreenMessage | None = None
    words: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenView:
    version: int = -1
    bubbles: Mapping[int, ScreenMessage] = field(default_factory=dict)
    toasts: int = 0
    toast_words: tuple[str, ...] = ()
    typing: bool = False

    @property
    def running(self) -> bool:
        return any(bubble.running for bubble in self.bubbles.values())

    @property
    def loud(self) -> int:
        """Number of messages of the bot that are not notices."""
        return sum(not bubble.silent for bubble in self.bubbles.values())

    def since(self, before: ScreenView) -> Iterator[ScreenChange]:
        if self.typing and not before.typing:
            yield ScreenChange(kind="typing")
        for number in before.bubbles:
            if number not in self.bubbles:
                yield ScreenChange(kind="gone", bubble=before.bubbles[number])
        for number, bubble in sorted(self.bubbles.items()):
            known = before.bubbles.get(number)
            if known is None:
                yield ScreenChange(kind="new", bubble=bubble)
            elif known.text != bubble.text:
                yield ScreenChange(kind="edited", bubble=bubble)
            elif known != bubble:
                yield ScreenChange(kind="buttons", bubble=bubble)
        for words in self.toast_words[before.toasts :]:
            yield ScreenChange(kind="toast", words=words)


def parse_screen(screen: Mapping[str, Any]) -> ScreenView:
    bubbles = (_bubble(line) for line in screen["lines"] if line["by"] == "bot" and not line["service"])
    toasts = tuple(str(toast.get("text") or "") for toast in screen["toasts"])
    return ScreenView(
        version=int(screen["version"]),
        bubbles={bubble.message_id: bubble for bubble in bubbles},
        toasts=len(toasts),
        toast_words=toasts,
        typing=bool(screen["typing"]),
    )


def _bubble(line: Mapping[str, Any]) -> ScreenMessage:
    rows: Sequence[Sequence[Mapping[str, Any]]] = (line.get("reply_markup") or {}).get("inline_keyboard", ())
    buttons = [button for row in rows for button in row]
    text = str(line.get("text") or line.get("caption") or "")
    if name := (line.get("document") or {}).get("file_name"):
        text = f"[{name}] {text}".strip()
    return ScreenMessage(
        message_id=int(line["message_id"]),
        text=text,
        labels=tuple(str(button["text"]) for button in buttons),
        silent=bool(line["silent"]),
        running=any(_STOP in str(button.get("callback_data")) for button in buttons),
    )


class ButtonNumbers:
    """Numbers of the buttons on a screen.

    A button keeps its number while it exists, then the number is free.
    """

    def __init__(self) -> None:
        self._given: dict[int, tuple[int, str]] = {}

    def follow(self, bubbles: Mapping[int, ScreenMessage]) -> None:
        there = {(number, label) for number, bubble in bubbles.items() for label in bubble.labels}
        self._given = {number: button for number, button in self._given.items() if button in there}
        for button in ((bubble.message_id, label) for bubble in bubbles.values() for label in bubble.labels):
            if button not in self._given.values():
                free = next(number for number in range(1, len(there) + 1) if number not in self._given)
                self._given[free] = button

    def of(self, bubble: ScreenMessage) -> list[tuple[int, str]]:
        """Return number and label of the message's buttons, in order."""
        found = {button: number for number, button in self._given.items()}
        return [(found[bubble.message_id, label], label) for label in bubble.labels]

    def button(self, number: int) -> tuple[int, str] | None:
        """Return message id and label of the button with this number; None if there is none."""
        return self._given.get(number)
