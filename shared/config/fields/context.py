"""Settings of how conversations are kept; None means as the preset says."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from shared.config.fields.declaration import Declaration, FormRow
from shared.config.fields.kinds import PresetName, Tokens, Turns, TurnsByChannel
from shared.core.presets.catalog import PRESETS


class ContextSettings(BaseModel):
    """Settings of the context policy; None takes the preset's value."""

    preset: Annotated[
        PresetName,
        Declaration(
            "Context",
            form=FormRow(
                "context",
                "Preset",
                "How much the model receives, and when the rest is summarised.",
                choices=tuple(sorted(PRESETS)),
            ),
        ),
    ] = Field(default="steady", description="context policy, see the [table of presets](context.md#presets)")
    context_window: Annotated[
        Tokens | None,
        Declaration(
            "Context",
            default="preset's",
            form=FormRow("context", "Context window", "Upper limit in tokens; the preset’s value if empty."),
        ),
    ] = Field(
        default=None, description="upper limit for the model's context window, in tokens; 200000 in `steady`"
    )
    soft_budget: Annotated[
        Tokens | None,
        Declaration(
            "Context",
            default="preset's",
            of_policy=True,
            form=FormRow("context", "Summarise above", rare=True),
        ),
    ] = Field(default=None, description="tokens of conversation above which it is summarised")
    reserve: Annotated[
        Tokens | None,
        Declaration(
            "Context", default="preset's", of_policy=True, form=FormRow("context", "Kept free", rare=True)
        ),
    ] = Field(default=None, description="tokens of the window that stay free")
    flush_threshold: Annotated[
        Tokens | None,
        Declaration(
            "Context",
            default="preset's",
            of_policy=True,
            form=FormRow("context", "Save memory before the limit", rare=True),
        ),
    ] = Field(default=None, description="number of tokens below the limit at which memory is saved")
    keep_turns: Annotated[
        Turns | None,
        Declaration(
            "Context",
            default="preset's",
            of_policy=True,
            form=FormRow("context", "Newest turns kept verbatim", rare=True),
        ),
    ] = Field(default=None, description="number of newest turns that are never summarised")
    max_rounds: Annotated[
        Turns | None,
        Declaration(
            "Context",
            default="preset's",
            of_policy=True,
            form=FormRow("context", "Newest rounds sent", rare=True),
        ),
    ] = Field(
        default=None,
        description=(
            "number of newest rounds that are sent; a round is a message and its answer; older rounds"
            " stay in the log"
        ),
    )
    history_turns: Annotated[
        TurnsByChannel,
        Declaration(
            "Context", of_policy=True, form=FormRow("context", "Turns of history by channel", rare=True)
        ),
    ] = Field(
        default=(), description="number of turns of history that are sent, by channel: `telegram=50,web=200`"
    )
    window_messages: Annotated[
        Turns | None,
        Declaration(
            "Context",
            default="preset's",
            of_policy=True,
            form=FormRow("context", "Newest messages sent", rare=True),
        ),
    ] = Field(default=None, description="number of newest messages that are sent")
    trim_tokens: Annotated[
        Tokens | None,
        Declaration(
            "Context",
            default="preset's",
            of_policy=True,
            form=FormRow("context", "Leave out old messages above", rare=True),
        ),
    ] = Field(default=None, description="tokens of conversation above which whole old messages are not sent")
