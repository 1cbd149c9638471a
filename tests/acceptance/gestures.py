"""What each gesture of a person means for the requests that follow, and the judgement of a request."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Meanings:
    """Texts that later requests must hold, and texts that they must not, each by its gesture."""

    holds: dict[str, str] = field(default_factory=dict)
    lacks: dict[str, str] = field(default_factory=dict)

    def add(self, gesture: str, *texts: str) -> None:
        """The gesture brings these texts."""
        self.holds |= {f"{gesture} {number}": text for number, text in enumerate(texts)}

    def replace(self, gesture: str, old: str, new: str) -> None:
        """The gesture puts one text in the place of another."""
        self.holds = {name: new if text == old else text for name, text in self.holds.items()}
        self.holds[gesture] = new
        self.lacks[gesture] = old

    def remove(self, gesture: str, text: str) -> None:
        """The gesture takes a text away."""
        self.holds = {name: held for name, held in self.holds.items() if held != text}
        self.lacks[gesture] = text

    def find_faults(self, request: str) -> list[str]:
        """One line per gesture whose meaning the request does not show."""
        missing = [f"{name}: lacks {text!r}" for name, text in self.holds.items() if text not in request]
        return missing + [
            f"{name}: still holds {text!r}" for name, text in self.lacks.items() if text in request
        ]
