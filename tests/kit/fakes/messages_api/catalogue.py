"""The models that the fake serves, with context windows that a test may change."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.kit.fakes.messages_api.shapes import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    id: str
    display_name: str
    window: int
    max_output: int
    created_at: str = "2026-09-01T00:00:00Z"
    always_thinks: bool = False
    """Whether the model refuses `thinking: disabled` and a forced choice of tool, as Sonnet 5.5 does."""

    def as_json(self) -> Json:
        return {
            "type": "model",
            "id": self.id,
            "display_name": self.display_name,
            "created_at": self.created_at,
            "lifecycle": "active",
            "deprecated_at": None,
            "retires_at": None,
            "line": next((line for line in ("haiku", "sonnet", "opus", "fable") if line in self.id), None),
            "max_input_tokens": self.window,
            "max_tokens": self.max_output,
            "capabilities": _capabilities(self),
        }


def _capabilities(model: Model) -> Json:
    yes, no = {"supported": True}, {"supported": False}
    efforts = dict.fromkeys(("low", "medium", "high", "xhigh", "max"), yes)
    return {
        "batch": no,
        "citations": no,
        "code_execution": no,
        "context_management": {"supported": False},
        "effort": {"supported": True, **efforts},
        "image_input": yes,
        "pdf_input": no,
        "server_tools": {"supported": False, "code_execution": no, "web_search": no},
        "structured_outputs": yes,
        "thinking": {
            "supported": True,
            "types": {
                "adaptive": yes,
                "between_tools": yes,
                "enabled": yes,
                "disabled": no if model.always_thinks else yes,
            },
        },
    }


KNOWN_MODELS = (
    Model(
        id="claude-sonnet-5-5",
        display_name="Claude Sonnet 5.5",
        window=1_000_000,
        max_output=128_000,
        always_thinks=True,
    ),
    Model(id="claude-haiku-5-5", display_name="Claude Haiku 5.5", window=1_000_000, max_output=128_000),
    Model(id="claude-opus-5-5", display_name="Claude Opus 5.5", window=1_000_000, max_output=128_000),
    Model(id="claude-fable-5-1", display_name="Claude Fable 5.1", window=1_000_000, max_output=128_000),
    Model(id="claude-haiku-4-5", display_name="Claude Haiku 4.5", window=200_000, max_output=64_000),
    Model(id="claude-haiku-4-5-20251001", display_name="Claude Haiku 4.5", window=200_000, max_output=64_000),
)


class Catalogue:
    """The served models by name.

    Setting a window for an unknown name adds that model.
    """

    def __init__(self, window: int | None = None) -> None:
        self._start_window = window
        self._models: dict[str, Model] = {}
        self.reset()

    def reset(self) -> None:
        """Restore the known models and their windows."""
        self._models = {model.id: model for model in KNOWN_MODELS}
        if self._start_window is not None:
            for name in tuple(self._models):
                self.set_window(name, self._start_window)

    def set_window(self, name: str, tokens: int) -> None:
        """Set the context window, in tokens, of a model; an unknown name adds it."""
        known = self._models.get(name) or Model(id=name, display_name=name, window=tokens, max_output=128_000)
        self._models[name] = replace(known, window=tokens)

    def get(self, name: object) -> Model | None:
        """Return the model with this name; None if there is none."""
        return self._models.get(name) if isinstance(name, str) else None

    def all(self) -> tuple[Model, ...]:
        return tuple(self._models.values())
