"""Settings of Telegram beyond the token of the bot."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from shared.config.fields.declaration import Declaration, FormRow
from shared.config.fields.kinds import (
    ChatIds,
    ExistingFile,
    ObjectList,
    Port,
    SecretMap,
    TelegramAccess,
    TelegramAudience,
    TelegramGuests,
    TelegramMode,
    TelegramSecretary,
    TelegramSecretaryChats,
    WebAddress,
    WebhookSecret,
)

TELEGRAM_API_URL = "https://api.telegram.org"
"""Address of Telegram's own Bot API server."""


class TelegramSettings(BaseModel):
    """Settings of Telegram beyond the token of the first bot."""

    telegram_access: Annotated[
        TelegramAccess,
        Declaration(
            "Telegram",
            form=FormRow(
                "telegram",
                "Who may write",
                "People who are approved (pairing), people on the list (allowlist), or anyone (open).",
            ),
        ),
    ] = Field(
        default="pairing",
        description=(
            "who may write: people you approve (`pairing`), people you list (`allowlist`) or anyone (`open`)"
        ),
    )
    telegram_allowed: Annotated[
        ChatIds,
        Declaration(
            "Telegram",
            form=FormRow(
                "telegram",
                "Allowed people and groups",
                "IDs of people and groups, separated by commas; group IDs begin with -.",
            ),
        ),
    ] = Field(
        default=(),
        description="comma-separated ids of people and groups that may write; group ids begin with `-`",
    )
    telegram_audience: Annotated[
        TelegramAudience | None,
        Declaration("Telegram", default="the profile", form=FormRow("telegram", "Audience", rare=True)),
    ] = Field(
        default=None,
        description=("`personal` shows everything; `public` is a plain chat without figures and model names"),
    )
    telegram_agent: Annotated[
        str,
        Declaration("Telegram", form=FormRow("telegram", "Agent", "Answers new conversations of this bot.")),
    ] = Field(
        default="default",
        description=(
            "the [agent](agents.md) of the bot of `TELEGRAM_BOT_TOKEN`, for new conversations; an "
            "unknown name is the first agent"
        ),
    )
    telegram_mode: Annotated[TelegramMode, Declaration("Telegram", container="absent")] = Field(
        default="polling",
        description=(
            "with `polling` the bot fetches messages from Telegram; with `webhook` Telegram sends them"
        ),
    )
    telegram_bots: Annotated[
        ObjectList, Declaration("Telegram", form=FormRow("telegram", "More bots", kind="bots"))
    ] = Field(
        default="",
        description=(
            "more bots, as in a [bots file](#bots-file), in one line; the dashboard's page Settings "
            "writes them"
        ),
    )
    telegram_tokens: Annotated[
        SecretMap | None, Declaration("Telegram", processes=("bot",), by_purpose=True)
    ] = Field(default=None, description="their tokens: a JSON object of the names in `token_env` and tokens")
    telegram_webhook_secret: Annotated[
        WebhookSecret | None, Declaration("Telegram", processes=("bot",), container="absent")
    ] = Field(
        default=None,
        description="required with `webhook`: at least 32 characters from A-Z, a-z, 0-9, `_`, `-`",
    )
    telegram_port: Annotated[Port, Declaration("Telegram", per_host=True, container="absent")] = Field(
        default=8081,
        description=(
            "port on which the bot process receives webhooks, at the address `EVERTALK_HTTP_HOST`; 0 "
            "picks a free port"
        ),
    )
    telegram_api_url: Annotated[WebAddress, Declaration("Telegram")] = Field(
        default=TELEGRAM_API_URL, description="address of your own Bot API server"
    )
    telegram_bots_file: Annotated[ExistingFile | None, Declaration("Telegram", per_host=True)] = Field(
        default=None, description="JSON [bots file](#bots-file) that describes several bots"
    )
    telegram_drafts: Annotated[
        bool, Declaration("Telegram", form=FormRow("telegram", "Stream answers as drafts", rare=True))
    ] = Field(
        default=True,
        description=(
            "private chats see an answer grow in Telegram's own draft bubble, with its stop button; "
            "`false` edits messages"
        ),
    )
    telegram_rich: Annotated[
        bool, Declaration("Telegram", form=FormRow("telegram", "Tables and formulas", rare=True))
    ] = Field(
        default=True,
        description=(
            "answers with tables, formulas or task lists go in Telegram's [rich "
            "format](telegram.md#tables-and-formulas) where the server takes it; `false` sends text"
        ),
    )
    telegram_messages: Annotated[int, Declaration("Telegram")] = Field(
        default=5,
        ge=1,
        le=30,
        description="messages that one answer may take, 1 to 30; a longer answer goes on in a file",
    )
    telegram_reactions: Annotated[
        bool, Declaration("Telegram", form=FormRow("telegram", "Show a reaction while working", rare=True))
    ] = Field(
        default=False, description="`true` puts 👀 on a message in a group while the bot works at its answer"
    )
    telegram_channels: Annotated[
        bool, Declaration("Telegram", form=FormRow("telegram", "Answer posts of channels", rare=True))
    ] = Field(
        default=False,
        description=(
            "`true` answers posts of channels where the bot is an administrator, if they [turn to "
            "it](telegram.md#channels)"
        ),
    )
    telegram_inline: Annotated[
        bool, Declaration("Telegram", form=FormRow("telegram", "Answer inline queries", rare=True))
    ] = Field(
        default=False,
        description="`true` answers [inline queries](telegram.md#inline-queries) of people who may write",
    )
    telegram_guests: Annotated[
        TelegramGuests | None,
        Declaration(
            "Telegram",
            default="`known`; for public bots `off`",
            form=FormRow(
                "telegram",
                "Answer in chats without the bot",
                "Off, approved people only (known), or anyone.",
                rare=True,
            ),
        ),
    ] = Field(
        default=None,
        description=(
            "who is answered in [chats without the bot](telegram.md#guest-mode): `off` nobody, "
            "`known` people who may write, `anyone`"
        ),
    )
    telegram_guest_questions: Annotated[
        int,
        Declaration("Telegram", form=FormRow("telegram", "Guest questions per person and hour", rare=True)),
    ] = Field(
        default=20, ge=1, le=1_000, description="questions per hour that one person may ask in such chats"
    )
    telegram_secretary: Annotated[
        TelegramSecretary,
        Declaration("Telegram", form=FormRow("telegram", "Drafts for business accounts", rare=True)),
    ] = Field(
        default="off",
        description=(
            "answers for owners of [business accounts](telegram.md#secretary-mode): `off` none, "
            "`drafts` that the owner approves, `auto` sent at once; never for public bots"
        ),
    )
    telegram_secretary_chats: Annotated[
        TelegramSecretaryChats,
        Declaration("Telegram", form=FormRow("telegram", "Customers who get drafts", rare=True)),
    ] = Field(
        default="all",
        description="customers who get drafts: `all`, only the `listed` ones, or all `unlisted` ones",
    )
    telegram_secretary_list: Annotated[
        ChatIds, Declaration("Telegram", form=FormRow("telegram", "List of customers", rare=True))
    ] = Field(default=(), description="Telegram ids of the listed customers, separated by commas")
    telegram_secretary_auto: Annotated[
        ChatIds,
        Declaration("Telegram", form=FormRow("telegram", "Customers answered without approval", rare=True)),
    ] = Field(default=(), description="Telegram ids of customers who are answered without approval")
    telegram_secretary_hours: Annotated[
        int,
        Declaration("Telegram", form=FormRow("telegram", "Hours in which a draft can be sent", rare=True)),
    ] = Field(
        default=24,
        ge=1,
        le=24,
        description="hours after a customer's message in which a draft can be sent, 1 to 24",
    )
