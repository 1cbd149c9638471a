"""Settings of the provider, the bot and existing servers, by names that other programs use too."""

from __future__ import annotations

from typing import Annotated

from pydantic import AliasChoices, BaseModel, Field, SecretStr

from shared.config.fields.declaration import ALL, Declaration, FormRow
from shared.config.fields.kinds import BotToken, PostgresAddress, RedisAddress, Tokens, WebAddress


class ConnectionSettings(BaseModel):
    """Settings of model providers, of the first bot, and of existing PostgreSQL and Redis servers."""

    anthropic_api_key: Annotated[
        SecretStr | None,
        Declaration(
            "Model provider",
            sent_to="anthropic_base_url",
            processes=ALL,
            form=FormRow("model", "{provider}: key", "Sent to this provider only.", provider="Anthropic"),
        ),
    ] = Field(
        default=None,
        validation_alias=AliasChoices("ANTHROPIC_API_KEY"),
        description="API key of the model provider; without a key the built-in demo model answers",
    )
    anthropic_base_url: Annotated[
        WebAddress | None,
        Declaration(
            "Model provider",
            default="the provider's",
            form=FormRow(
                "model", "{provider}: address", "Any server with the Messages API.", provider="Anthropic"
            ),
        ),
    ] = Field(
        default=None,
        validation_alias=AliasChoices("ANTHROPIC_BASE_URL"),
        description="base URL of any server that speaks the Messages API",
    )
    openai_api_key: Annotated[
        SecretStr | None,
        Declaration(
            "Model provider",
            sent_to="openai_base_url",
            processes=ALL,
            form=FormRow("model", "{provider}: key", "Sent to this provider only.", provider="OpenAI"),
        ),
    ] = Field(
        default=None,
        validation_alias=AliasChoices("OPENAI_API_KEY"),
        description=(
            "API key of OpenAI, or of the server in `OPENAI_BASE_URL`; used for the model in "
            "`EVERTALK_MODEL` if neither of the two above is set"
        ),
    )
    openai_base_url: Annotated[
        WebAddress | None,
        Declaration(
            "Model provider",
            default="OpenAI's",
            form=FormRow(
                "model",
                "{provider}: address",
                "Any server with Chat Completions, such as http://127.0.0.1:1234/v1.",
                provider="OpenAI",
            ),
        ),
    ] = Field(
        default=None,
        validation_alias=AliasChoices("OPENAI_BASE_URL"),
        description=(
            "base URL of any server that speaks Chat Completions, such as `http://127.0.0.1:1234/v1`"
        ),
    )
    telegram_bot_token: Annotated[
        BotToken | None,
        Declaration("Telegram", processes=("bot",), form=FormRow("telegram", "Token of the bot")),
    ] = Field(
        default=None,
        validation_alias=AliasChoices("TELEGRAM_BOT_TOKEN"),
        description=(
            "token of the Telegram bot, from @BotFather; without a token the Telegram channel is off"
        ),
    )
    database_url: Annotated[
        PostgresAddress | None,
        Declaration(
            "Storage and processes", default="own server", processes=ALL, per_host=True, container="file"
        ),
    ] = Field(
        default=None,
        validation_alias=AliasChoices("DATABASE_URL"),
        description=(
            "an existing PostgreSQL 15 or newer with the `btree_gist` extension available; for TLS "
            "add `?sslmode=verify-full`"
        ),
    )
    # Migrations, dumps and the doctor use it; no process that runs all the time does.
    direct_database_url: Annotated[
        PostgresAddress | None,
        Declaration("Storage and processes", default="`DATABASE_URL`", processes=(), per_host=True),
    ] = Field(
        default=None,
        description=(
            "address of PostgreSQL that bypasses a connection pooler; `migrate`, `backup`, `restore`,"
            " `upgrade` and `psql` use it"
        ),
    )
    redis_url: Annotated[
        RedisAddress | None,
        Declaration(
            "Storage and processes", default="own server", processes=ALL, per_host=True, container="file"
        ),
    ] = Field(
        default=None,
        validation_alias=AliasChoices("REDIS_URL"),
        description=("an existing Redis 7 or newer, or Valkey, but not a cluster; for TLS use `rediss://…`"),
    )
    max_output: Annotated[
        Tokens | None,
        Declaration(
            "Model provider",
            default="preset's",
            of_policy=True,
            form=FormRow(
                "model",
                "Maximum answer length",
                "In tokens; the preset’s value if empty.",
                after="fallback_models",
            ),
        ),
    ] = Field(
        default=None,
        validation_alias=AliasChoices("CONTEXT_MAX_OUTPUT_TOKENS"),
        description="maximum length of an answer, in tokens; 8192 in `steady`, 2048 in `pantheon`",
    )
