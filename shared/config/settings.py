"""Settings: read from the environment and `.env`, checked once, refused with reasons."""

from __future__ import annotations

import difflib
import importlib.util
import ipaddress
import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import parse_qs, urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import platformdirs
from dotenv import dotenv_values
from pydantic import AliasChoices, Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from shared.config.secret_files import SUFFIX, read_secret_file
from shared.core.context.overrides import parse_history_turns
from shared.core.context.settings_conflicts import misfits
from shared.core.identity.oidc import is_safe_address, parse_groups
from shared.core.identity.operators import Role
from shared.core.identity.working_hours import parse_working_hours
from shared.core.presets.catalog import PRESETS
from shared.core.tools.mcp import servers_in
from shared.core.tools.reminders import parse_quiet_hours
from shared.core.tools.web_address import is_this_machine

PREFIX = "EVERTALK_"
ENV_FILE_NAME = "EVERTALK_ENV_FILE"
"""Variable with the path of the `.env` file; empty means none. Tests avoid an operator's file by it."""

ORIGINS_NAME = "EVERTALK_ORIGINS"
"""Variable by which `up` tells its processes the sources of settings, such as `REDIS_URL=file`."""

TELEGRAM_API_URL = "https://api.telegram.org"

_MIN_SECRET_CHARS = 32
# Telegram gives 35 characters behind the colon; a Bot API server of one's own may give more.
_BOT_TOKEN = re.compile(r"[0-9]{3,20}:[A-Za-z0-9_-]{35,80}")
_WEBHOOK_SECRET = re.compile(r"[A-Za-z0-9_-]{32,256}")
_MAIL = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*")
_CHAT_ID = re.compile(r"-?[0-9]{1,16}")

Dollars = Annotated[Decimal, Field(ge=0, max_digits=12, decimal_places=6)]
Tokens = Annotated[int, Field(gt=0, le=100_000_000)]
Turns = Annotated[int, Field(ge=1, le=1_000_000)]
Words = Annotated[tuple[str, ...], NoDecode]
"""A list written as `a, b c` in the environment."""
ChatIds = Annotated[tuple[int, ...], NoDecode]
"""Telegram's numbers of people (positive) and groups (negative), written like `Words`."""
TurnsByChannel = Annotated[tuple[tuple[str, int], ...], NoDecode]
"""Turns of history by channel, written `telegram=50,web=200`."""
RolesByGroup = Annotated[tuple[tuple[str, Role], ...], NoDecode]
"""Roles of operators by groups of an identity provider, written `ops=operator,admins=admin`."""
SettingSource = Literal["environment", "file", "stored", "default"]
TelegramAccess = Literal["pairing", "allowlist", "open"]
TelegramAudience = Literal["personal", "public"]
TelegramMode = Literal["polling", "webhook"]
TelegramGuests = Literal["off", "known", "anyone"]
TelegramSecretary = Literal["off", "drafts", "auto"]
TelegramSecretaryChats = Literal["all", "listed", "unlisted"]


_REDIS_WORDS = frozenset(
    {
        "client_name", "db", "health_check_interval", "max_connections", "retry_on_timeout",
        "socket_connect_timeout", "socket_keepalive", "socket_timeout", "ssl_ca_certs", "ssl_ca_data",
        "ssl_cert_reqs", "ssl_certfile", "ssl_check_hostname", "ssl_keyfile",
    }
)  # fmt: skip
"""Query parameters of REDIS_URL that the client accepts; it fails on others when it connects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsProblem:
    """One setting that cannot be used; `value` is already safe to print."""

    name: str
    value: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name}={self.value}: {self.reason}" if self.value else f"{self.name}: {self.reason}"


class BadSettings(Exception):
    """The configuration cannot be used; every problem is named at once."""

    def __init__(self, problems: tuple[SettingsProblem, ...]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


def _unprefixed(name: str) -> Any:
    return Field(default=None, validation_alias=AliasChoices(name))


class Settings(BaseSettings):
    """All settings; a test compares the tables of docs/settings.md with this class."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=True, extra="ignore", frozen=True, populate_by_name=True
    )

    # The provider, Telegram and existing servers: names that other programs use too.
    anthropic_api_key: SecretStr | None = _unprefixed("ANTHROPIC_API_KEY")
    anthropic_base_url: str | None = _unprefixed("ANTHROPIC_BASE_URL")
    openai_api_key: SecretStr | None = _unprefixed("OPENAI_API_KEY")
    openai_base_url: str | None = _unprefixed("OPENAI_BASE_URL")
    telegram_bot_token: SecretStr | None = _unprefixed("TELEGRAM_BOT_TOKEN")
    database_url: SecretStr | None = _unprefixed("DATABASE_URL")
    direct_database_url: SecretStr | None = None
    redis_url: SecretStr | None = _unprefixed("REDIS_URL")
    max_output: Tokens | None = _unprefixed("CONTEXT_MAX_OUTPUT_TOKENS")

    # Where it lives and who may reach it.
    data_dir: Path = Field(default_factory=lambda: default_data_dir())
    servers_account: str = Field(default="evertalk-servers", pattern=r"^[a-z_][a-z0-9_-]{0,31}$")
    http_host: str = "127.0.0.1"
    http_port: int = Field(default=8080, ge=0, le=65535)
    public_url: str | None = None
    trusted_proxies: Words = ()
    allowed_origins: Words = ()
    profile: Literal["personal", "public"] = "personal"
    timezone: str = "UTC"
    quiet_hours: str = ""

    # Telegram beyond its token.
    telegram_access: TelegramAccess = "pairing"
    telegram_allowed: ChatIds = ()
    telegram_audience: TelegramAudience | None = None
    telegram_agent: str = "default"
    telegram_mode: TelegramMode = "polling"
    telegram_bots: str = ""
    telegram_tokens: SecretStr | None = None
    telegram_webhook_secret: SecretStr | None = None
    telegram_port: int = Field(default=8081, ge=0, le=65535)
    telegram_api_url: str = TELEGRAM_API_URL
    telegram_bots_file: Path | None = None
    telegram_drafts: bool = True
    telegram_rich: bool = True
    telegram_messages: int = Field(default=5, ge=1, le=30)
    telegram_reactions: bool = False
    telegram_channels: bool = False
    telegram_inline: bool = False
    telegram_guests: TelegramGuests | None = None
    telegram_guest_questions: int = Field(default=20, ge=1, le=1_000)
    telegram_secretary: TelegramSecretary = "off"
    telegram_secretary_chats: TelegramSecretaryChats = "all"
    telegram_secretary_list: ChatIds = ()
    telegram_secretary_auto: ChatIds = ()
    telegram_secretary_hours: int = Field(default=24, ge=1, le=24)

    # How conversations are kept; None means "as the preset says".
    preset: str = "steady"
    context_window: Tokens | None = None
    soft_budget: Tokens | None = None
    reserve: Tokens | None = None
    flush_threshold: Tokens | None = None
    keep_turns: Turns | None = None
    max_rounds: Turns | None = None
    history_turns: TurnsByChannel = ()
    window_messages: Turns | None = None
    trim_tokens: Tokens | None = None

    # Models; an empty name means "choose what can be reached".
    model: str = ""
    summary_model: str = ""
    fallback_models: Annotated[Words, Field(max_length=4)] = ()
    models: str = ""
    model_keys: SecretStr | None = None
    models_file: Path | None = None
    mcp_file: Path | None = None
    mcp_servers: SecretStr | None = None
    mcp_approval: Literal["writing", "always", "never"] = "writing"

    # Who turns speech into words; without an address and a folder, nobody does.
    picture_url: str | None = None
    picture_key: SecretStr | None = None
    picture_model: str = "gpt-image-2"
    picture_usd: Dollars | None = None
    transcribe_url: str | None = None
    transcribe_key: SecretStr | None = None
    transcribe_model: str = "whisper-1"
    transcribe_per_minute_usd: Dollars | None = None
    transcribe_most_minutes: float = Field(default=10, gt=0, le=240)
    transcribe_most_mb: float = Field(default=20, gt=0, le=20)
    transcribe_folder: Path | None = None

    # Who reads answers aloud; without an address, nobody does.
    speech_url: str | None = None
    speech_key: SecretStr | None = None
    speech_model: str = "gpt-4o-mini-tts"
    speech_voice: str = "alloy"
    speech_per_1000_chars_usd: Dollars | None = None

    # Whether recall also finds what was meant, where the extra `meaning` is installed or its socket is named.
    meaning: bool = True
    meaning_socket: Path | None = None

    # Who orders what recall finds: any server with /rerank.
    rerank_url: str | None = None
    rerank_key: SecretStr | None = None
    rerank_model: str = ""

    # Who says what texts mean in place of the extra: any server with /embeddings.
    embeddings_url: str | None = None
    embeddings_key: SecretStr | None = None
    embeddings_model: str = ""

    # Agents' folders: how often their files are looked at beside the watcher.
    workspace_poll_seconds: int = Field(default=60, ge=0, le=86_400)

    # Money, in US dollars.
    cap_total_per_day_usd: Dollars = Decimal("5.00")
    cap_person_per_day_usd: Dollars | None = None
    cap_session_usd: Dollars | None = None
    cap_visitor_per_day_usd: Dollars = Decimal("0.25")
    cap_network_per_day_usd: Dollars | None = None
    cap_guests_per_day_usd: Dollars = Decimal("1.00")
    cap_secretary_per_day_usd: Dollars = Decimal("1.00")
    cap_customer_per_day_usd: Dollars = Decimal("0.25")
    cap_tokens_per_day: int | None = Field(default=None, ge=1)
    cap_visitors_per_hour_percent: int = Field(default=25, ge=1, le=100)

    # Humans who take over: None is on where anyone may talk, off among yourselves.
    handover: Literal["off", "on"] | None = None
    handover_minutes: float = Field(default=10, gt=0, le=10_080)
    handover_silence_minutes: float = Field(default=60, gt=0, le=10_080)
    working_hours: str = Field(default="", max_length=500)
    away_text: str = Field(default="", max_length=500)

    # Copies of everything: how many are kept (0: none is made by itself), and where.
    backup_keep: int = Field(default=7, ge=0, le=365)
    backup_dir: Path | None = None
    backup_copy_dir: Path | None = None

    # How long conversations are kept; None means until they are forgotten.
    retention_days: int | None = Field(default=None, ge=1, le=36500)

    # Whom a worker tells before and after each summary; with its text if that is wished.
    compaction_hook_url: SecretStr | None = None
    compaction_hook_secret: SecretStr | None = None
    compaction_hook_summary: bool = False

    # Whom alerts go to.
    alert_telegram_chats: ChatIds = ()
    alert_webhook_url: SecretStr | None = None
    alert_webhook_secret: SecretStr | None = None
    alert_smtp_url: SecretStr | None = None
    alert_email_from: str = ""
    alert_email_to: Words = ()
    alert_outage_seconds: int = Field(default=60, ge=5, le=3_600)

    # Push services of one's own, where notifications of browsers may go although they are not public.
    push_services: Words = ()

    # Secrets and what operators see.
    secret_key: SecretStr | None = None
    metrics_token: SecretStr | None = None
    otlp_endpoint: str | None = None

    # Operators who log in by an identity provider.
    oidc_issuer: str | None = None
    oidc_client_id: str = ""
    oidc_client_secret: SecretStr | None = None
    oidc_groups: RolesByGroup = ()

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["auto", "text", "json"] = "auto"

    process_file: Path | None = None
    # For the fault suite alone: the process ends at this named point.
    crash_point: str | None = None

    @field_validator(
        "trusted_proxies",
        "allowed_origins",
        "push_services",
        "alert_email_to",
        "fallback_models",
        mode="before",
    )
    @classmethod
    def _split_words(cls, value: object) -> object:
        return tuple(value.replace(",", " ").split()) if isinstance(value, str) else value

    @field_validator("models", "telegram_bots")
    @classmethod
    def _list_of_objects(cls, text: str) -> str:
        found = parse_json(text) if text.strip() else []
        if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
            raise ValueError("must be a JSON list of objects")
        return text.strip()

    @field_validator("model_keys", "telegram_tokens")
    @classmethod
    def _map_of_secrets(cls, secret: SecretStr | None) -> SecretStr | None:
        read_secrets(secret)
        return secret

    @field_validator("history_turns", mode="before")
    @classmethod
    def _turns_by_channel(cls, value: object) -> object:
        return parse_history_turns(value) if isinstance(value, str) else value

    @field_validator("oidc_groups", mode="before")
    @classmethod
    def _roles_by_group(cls, value: object) -> object:
        return parse_groups(value) if isinstance(value, str) else value

    @field_validator("oidc_issuer")
    @classmethod
    def _provider(cls, url: str | None) -> str | None:
        if url is not None and not (is_safe_address(url) and "?" not in url):
            raise ValueError("must begin with https:// (http:// only on this machine), without ? and #")
        return url

    @field_validator(
        "telegram_allowed", "alert_telegram_chats", "telegram_secretary_list", "telegram_secretary_auto",
        mode="before",
    )  # fmt: skip
    @classmethod
    def _chat_ids(cls, value: object) -> object:
        words = value.replace(",", " ").split() if isinstance(value, str) else value
        return parse_chat_ids(words) if isinstance(words, list | tuple) else words

    @field_validator("telegram_bot_token")
    @classmethod
    def _token_of_a_bot(cls, token: SecretStr | None) -> SecretStr | None:
        return None if token is None else validate_bot_token(token)

    @field_validator("telegram_webhook_secret")
    @classmethod
    def _secret_of_the_webhook(cls, secret: SecretStr | None) -> SecretStr | None:
        if secret is not None and not _WEBHOOK_SECRET.fullmatch(secret.get_secret_value()):
            raise ValueError("must have 32 to 256 characters, only A-Z, a-z, 0-9, _ and -")
        return secret

    @field_validator("alert_webhook_url", "compaction_hook_url")
    @classmethod
    def _webhook_address(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None:
            parts = urlsplit(_check_url(url.get_secret_value(), schemes=("http", "https")))
            if parts.scheme == "http" and not is_this_machine(parts.hostname or ""):
                raise ValueError("must begin with https://, unless it is on this machine (127.0.0.1)")
            if parts.username or parts.password:
                raise ValueError("holds a name or a password; the signature says who sends")
        return url

    @field_validator("alert_webhook_secret", "compaction_hook_secret")
    @classmethod
    def _secret_of_signatures(cls, secret: SecretStr | None) -> SecretStr | None:
        if secret is not None and len(secret.get_secret_value()) < _MIN_SECRET_CHARS:
            raise ValueError(f"must have at least {_MIN_SECRET_CHARS} characters")
        return secret

    @field_validator("alert_smtp_url")
    @classmethod
    def _mail_server(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None:
            parts = urlsplit(_check_url(url.get_secret_value(), schemes=("smtp", "smtps")))
            if parts.path not in ("", "/") or parts.query or parts.fragment:
                raise ValueError("is smtp://NAME:PASSWORD@HOST:PORT or smtps://…, with nothing behind")
        return url

    @field_validator("push_services")
    @classmethod
    def _origins_of_push(cls, words: tuple[str, ...]) -> tuple[str, ...]:
        checked = tuple(_check_url(word.lower(), schemes=("http", "https")).rstrip("/") for word in words)
        if any(urlsplit(word).path or urlsplit(word).query or urlsplit(word).username for word in checked):
            raise ValueError("is a list of https://HOST[:PORT] or http://HOST[:PORT], with nothing behind")
        return checked

    @field_validator("alert_email_from")
    @classmethod
    def _sender_of_mail(cls, address: str) -> str:
        return _check_mail(address.strip()) if address.strip() else ""

    @field_validator("alert_email_to")
    @classmethod
    def _receivers_of_mail(cls, words: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(map(_check_mail, words)))

    @field_validator(
        "data_dir",
        "backup_dir",
        "models_file",
        "mcp_file",
        "telegram_bots_file",
        "process_file",
        "transcribe_folder",
        "meaning_socket",
        mode="after",
    )
    @classmethod
    def _absolute(cls, path: Path | None) -> Path | None:
        return path.expanduser().absolute() if path else None

    @field_validator("backup_copy_dir")
    @classmethod
    def _whole_path(cls, path: Path | None) -> Path | None:
        if path is not None and not path.is_absolute():
            raise ValueError("must be an absolute path, such as /mnt/backups")
        return path

    @field_validator("log_level", mode="before")
    @classmethod
    def _lower(cls, value: object) -> object:
        return value.lower() if isinstance(value, str) else value

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError("is not a time zone such as UTC or Europe/Berlin") from None
        return name

    @field_validator("working_hours")
    @classmethod
    def _week(cls, text: str) -> str:
        parse_working_hours(text, "UTC")
        return text.strip()

    @field_validator("quiet_hours")
    @classmethod
    def _hours(cls, text: str) -> str:
        parse_quiet_hours(text)
        return text.strip()

    @field_validator(
        "public_url",
        "anthropic_base_url",
        "openai_base_url",
        "telegram_api_url",
        "transcribe_url",
        "speech_url",
        "picture_url",
        "rerank_url",
        "embeddings_url",
    )
    @classmethod
    def _web_address(cls, url: str | None) -> str | None:
        return None if url is None else _check_url(url, schemes=("http", "https")).rstrip("/")

    @field_validator("database_url", "direct_database_url")
    @classmethod
    def _postgres_address(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None:
            _check_hosts(url.get_secret_value())
        return url

    @field_validator("redis_url")
    @classmethod
    def _redis_address(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None:
            checked = _check_url(
                url.get_secret_value(), schemes=("redis", "rediss", "unix"), host_needed=False
            )
            if unknown := parse_qs(urlsplit(checked).query).keys() - _REDIS_WORDS:
                raise ValueError(f"says {', '.join(sorted(unknown))}, which means nothing here")
        return url

    @field_validator("trusted_proxies")
    @classmethod
    def _networks(cls, words: tuple[str, ...]) -> tuple[str, ...]:
        for word in words:
            try:
                ipaddress.ip_network(word, strict=False)
            except ValueError:
                raise ValueError(f"{word!r} is not an address or a network such as 10.0.0.0/8") from None
        return words

    @field_validator("allowed_origins")
    @classmethod
    def _origins(cls, words: tuple[str, ...]) -> tuple[str, ...]:
        for word in words:
            parts = urlsplit(word)
            if parts.scheme not in ("http", "https") or not parts.netloc or parts.path not in ("", "/"):
                raise ValueError(f"{word!r} is not an origin such as https://example.org")
        return tuple(word.rstrip("/").lower() for word in words)

    @field_validator("models_file", "mcp_file", "telegram_bots_file")
    @classmethod
    def _readable(cls, path: Path | None) -> Path | None:
        if path is not None and not path.is_file():
            raise ValueError("there is no such file")
        return path

    @field_validator("mcp_servers")
    @classmethod
    def _servers_by_address(cls, servers: SecretStr | None) -> SecretStr | None:
        """Refuse MCP servers that start programs: settings of the browser may neither start one nor read
        variables.
        """
        if servers is None:
            return None
        found, problems = servers_in(servers.get_secret_value(), {})
        programs = [f"{server.name}: a program is named in a file only" for server in found if server.command]
        if wrong := [*problems, *programs]:
            raise ValueError("; ".join(wrong))
        return servers

    @field_validator("secret_key")
    @classmethod
    def _long_enough(cls, key: SecretStr | None) -> SecretStr | None:
        if key is not None and len(key.get_secret_value()) < _MIN_SECRET_CHARS:
            raise ValueError(f"must have at least {_MIN_SECRET_CHARS} characters")
        return key

    @field_validator("preset")
    @classmethod
    def _known_preset(cls, name: str) -> str:
        if name not in PRESETS:
            near = difflib.get_close_matches(name.lower(), PRESETS, 1)
            meant = f"did you mean {near[0]}?" if near else f"choose one of {', '.join(sorted(PRESETS))}"
            raise ValueError(f"is not a preset; {meant}")
        return name

    @property
    def local_url(self) -> str:
        """Address at which programs on this machine reach the web process."""
        host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self.http_host, self.http_host)
        return f"http://{f'[{host}]' if ':' in host and not host.startswith('[') else host}:{self.http_port}"

    @property
    def base_url(self) -> str:
        """Base address of links that people open: the public address, else the local one."""
        return self.public_url or self.local_url

    @property
    def telegram_default_audience(self) -> TelegramAudience:
        return self.telegram_audience or self.profile

    @property
    def has_handover(self) -> bool:
        """True if hand-over to operators is on: as `handover` says; by default if the profile is `public`."""
        return (self.handover or ("on" if self.profile == "public" else "off")) == "on"

    @property
    def alert_targets(self) -> tuple[str, ...]:
        """Targets of alerts that are set up: `telegram:CHAT` for each chat, `webhook` and `email`."""
        chats = tuple(f"telegram:{chat}" for chat in self.alert_telegram_chats)
        webhook = ("webhook",) if self.alert_webhook_url is not None else ()
        return (*chats, *webhook, *(("email",) if self.alert_smtp_url is not None else ()))

    @property
    def backups(self) -> Path:
        """Folder of the backups, with the log of erasures beside them."""
        return self.backup_dir or self.data_dir / "backups"

    def direct_url(self, database_url: str) -> str:
        """Return the address without a pooler, for connections that need a server session."""
        direct = self.direct_database_url
        return database_url if direct is None or self.database_url is None else direct.get_secret_value()

    @property
    def encoder_socket(self) -> Path:
        return self.meaning_socket or self.data_dir / "meaning.sock"

    @property
    def embedded_postgres(self) -> bool:
        return self.database_url is None

    @property
    def embedded_redis(self) -> bool:
        return self.redis_url is None


def load_settings(env_file: Path | None = None, **overrides: Any) -> Settings:
    """Read and check all settings; raise `BadSettings`, which names every problem at once.

    Overrides are by field name and win over the environment, which wins over the file. A secret may come
    from the file that NAME_FILE names.
    """
    from_files = _read_secret_files(_read_variables(env_file))
    try:
        settings = Settings(_env_file=env_file or default_env_file(), **{**from_files, **overrides})
    except ValidationError as error:
        raise BadSettings(tuple(_problem(detail) for detail in error.errors())) from None
    if contradictions := tuple(_contradictions(settings)):
        raise BadSettings(contradictions)
    return settings


def _contradictions(settings: Settings) -> Iterator[SettingsProblem]:
    """Yield problems that show only when values are compared."""
    yield from _number_contradictions(settings)
    yield from _alert_contradictions(settings)
    yield from _transcribe_contradictions(settings)
    if settings.backup_copy_dir == settings.backups:
        reason = "must be another folder than the one that backups are made in"
        yield SettingsProblem(
            name=f"{PREFIX}BACKUP_COPY_DIR", value=str(settings.backup_copy_dir), reason=reason
        )
    if settings.oidc_issuer is not None:
        if not settings.oidc_client_id:
            yield SettingsProblem(name=f"{PREFIX}OIDC_CLIENT_ID", value="", reason="is needed with an issuer")
        if not settings.oidc_groups:
            reason = "is needed with an issuer, or nobody gets in: groups and roles such as ops=operator"
            yield SettingsProblem(name=f"{PREFIX}OIDC_GROUPS", value="", reason=reason)
    if settings.telegram_mode != "webhook":
        return
    if settings.telegram_webhook_secret is None and "EVERTALK_TELEGRAM_WEBHOOK_SECRET" not in _list_sources():
        reason = "is needed in webhook mode: 32 random characters or more of A-Z, a-z, 0-9, _ and -"
        yield SettingsProblem(name=f"{PREFIX}TELEGRAM_WEBHOOK_SECRET", value="", reason=reason)
    if settings.public_url is None:
        reason = "is needed in webhook mode: Telegram sends its messages there"
        yield SettingsProblem(name=f"{PREFIX}PUBLIC_URL", value="", reason=reason)
    elif settings.telegram_api_url == TELEGRAM_API_URL and not settings.public_url.startswith("https://"):
        reason = "must begin with https:// in webhook mode: Telegram sends nothing to other addresses"
        yield SettingsProblem(name=f"{PREFIX}PUBLIC_URL", value=settings.public_url, reason=reason)


_POLICY_SETTINGS = (
    "max_output", "soft_budget", "reserve", "flush_threshold", "keep_turns", "max_rounds", "history_turns",
    "window_messages", "trim_tokens",
)  # fmt: skip
"""Settings that are fields of the policy by the same name; the window is fitted first."""


def load_policy_overrides(settings: Settings) -> dict[str, Any]:
    """Return the policy fields that the operator has set, by field name."""
    numbers = {name: getattr(settings, name) for name in _POLICY_SETTINGS}
    return {name: value for name, value in numbers.items() if value not in (None, ())}


def _number_contradictions(settings: Settings) -> Iterator[SettingsProblem]:
    """Yield a problem for each number to change before a conversation can be held, with a value that fits."""
    numbers = load_policy_overrides(settings)
    if settings.context_window is not None:
        numbers["context_window"] = settings.context_window
    for found in misfits(settings.preset, numbers):
        remedy = "leave it out" if found.fits is None else f"{found.fits} fits"
        reason = f"{_with_variables(found.reason)} (preset {settings.preset}); {remedy}"
        yield SettingsProblem(name=list_setting_names()[found.field], value=str(found.given), reason=reason)


def _with_variables(reason: str) -> str:
    """Replace the policy's field names in a reason by environment variables, where one sets the field."""
    names = list_setting_names()
    return re.sub(r"\b[a-z_]+(?==)", lambda found: names.get(found[0], found[0]), reason)


def _alert_contradictions(settings: Settings) -> Iterator[SettingsProblem]:
    for field in ("alert_webhook", "compaction_hook"):
        if getattr(settings, f"{field}_url") is not None and getattr(settings, f"{field}_secret") is None:
            name = f"{PREFIX}{field.upper()}"
            reason = f"is needed with {name}_URL: {_MIN_SECRET_CHARS} random characters or more"
            yield SettingsProblem(name=f"{name}_SECRET", value="", reason=reason)
    if settings.alert_smtp_url is not None:
        for name in ("alert_email_from", "alert_email_to"):
            if not getattr(settings, name):
                reason = f"is needed with {PREFIX}ALERT_SMTP_URL"
                yield SettingsProblem(name=f"{PREFIX}{name.upper()}", value="", reason=reason)


def _transcribe_contradictions(settings: Settings) -> Iterator[SettingsProblem]:
    if (folder := settings.transcribe_folder) is None:
        return
    reason = ""
    if settings.transcribe_url is not None:
        reason = f"cannot stand beside {PREFIX}TRANSCRIBE_URL: leave one of them out"
    elif not folder.is_dir():
        reason = "there is no such folder; it holds a model for faster-whisper, and none is downloaded"
    elif importlib.util.find_spec("faster_whisper") is None:
        reason = "needs faster-whisper, which is not installed: run ./evertalk install voice"
    if reason:
        yield SettingsProblem(name=f"{PREFIX}TRANSCRIBE_FOLDER", value=str(folder), reason=reason)


def parse_chat_ids(words: Sequence[object]) -> tuple[int, ...]:
    """Return chat ids as integers, each once.

    Raises ValueError for 0 or what is not an integer, such as an @name.
    """
    for word in words:
        if isinstance(word, bool) or not _CHAT_ID.fullmatch(str(word)) or not int(str(word)):
            raise ValueError(f"{word!r} is not the number of a person or a group; names cannot be used")
    return tuple(dict.fromkeys(int(str(word)) for word in words))


def parse_json(text: str) -> Any:
    """Return the value of a JSON text. Raises ValueError, whose message shows nothing of the text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("is not JSON") from None


def read_secrets(secret: SecretStr | str | None) -> dict[str, str]:
    """Return the secrets of a setting by name; empty if it is not set.

    The setting is a JSON object of texts. Raises ValueError, whose message shows no secret.
    """
    text = secret.get_secret_value() if isinstance(secret, SecretStr) else secret
    found = parse_json(text) if text else {}
    if not isinstance(found, dict) or not all(isinstance(one, str) for one in found.values()):
        raise ValueError("must be a JSON object of names and texts")
    return found


def open_secret(secret: SecretStr | None) -> str:
    """Return the secret as plain text; empty for None."""
    return "" if secret is None else secret.get_secret_value()


def validate_bot_token(token: SecretStr) -> SecretStr:
    """Return the token if it has a bot token's form. Raises ValueError, whose message does not show it."""
    if not _BOT_TOKEN.fullmatch(token.get_secret_value()):
        raise ValueError("is not a bot's token: digits, a colon and 35 characters, as @BotFather gives it")
    return token


def load_environment(env_file: Path | None = None) -> Mapping[str, str]:
    """Return all variables that are set, with the secrets read from files. Raises BadSettings.

    The environment wins over `.env`. Variables that name files of secrets are left out.
    """
    variables, names = _read_variables(env_file), list_setting_names()
    files = {name.upper() for name in list_secret_file_names()}
    kept = {name: value for name, value in variables.items() if name.upper() not in files}
    return kept | {names[field]: value for field, value in _read_secret_files(variables).items()}


def list_secret_file_names() -> dict[str, str]:
    """Return, for each variable that names a file with a secret, the settings field the file fills."""
    return {f"{name}{SUFFIX}": field for field, name in list_setting_names().items() if is_secret(field)}


def find_secret_files(env_file: Path | None = None) -> dict[str, str]:
    """Return the path of each secret, by field, that comes from a file."""
    given = {name.upper(): value for name, value in _read_variables(env_file).items()}
    return {field: given[name] for name, field in list_secret_file_names().items() if name in given}


def _read_secret_files(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the secrets of files, by field; raises BadSettings naming every problem at once."""
    given, names = {name.upper(): value for name, value in variables.items()}, list_setting_names()
    found: dict[str, str] = {}
    problems: list[SettingsProblem] = []
    for name, field in list_secret_file_names().items():
        if name not in given:
            continue
        if names[field] in given:
            reason = f"is set beside {names[field]}: leave one of them out"
            problems.append(SettingsProblem(name=name, value="", reason=reason))
            continue
        try:
            found[field] = read_secret_file(given[name])
        except ValueError as error:
            problems.append(SettingsProblem(name=name, value="", reason=str(error)))
    if problems:
        raise BadSettings(tuple(problems))
    return found


def _read_variables(env_file: Path | None) -> dict[str, str]:
    """Return what is set in the environment or in `.env`; an empty variable counts as missing."""
    path = env_file or default_env_file()
    written = dotenv_values(path) if path is not None and path.is_file() else {}
    return {name: value for name, value in (*written.items(), *os.environ.items()) if value}


def find_setting_sources(
    env_file: Path | None = None,
) -> dict[str, SettingSource]:
    """Where each setting, by field, comes from just now."""
    if told := _list_sources():
        return {field: told.get(name, "default") for field, name in list_setting_names().items()}
    path = env_file or default_env_file()
    written = dotenv_values(path) if path is not None and path.is_file() else {}
    in_file = _with_secret_files({name.upper() for name, value in written.items() if value})
    outside = _with_secret_files({name.upper() for name, value in os.environ.items() if value})
    return {
        field: "environment" if name in outside else "file" if name in in_file else "default"
        for field, name in list_setting_names().items()
    }


def _with_secret_files(given: set[str]) -> set[str]:
    """Add the settings whose value is in a file that one of these variables names."""
    names = list_setting_names()
    return given | {names[field] for name, field in list_secret_file_names().items() if name in given}


def _list_sources() -> dict[str, SettingSource]:
    words = (word.partition("=") for word in os.environ.get(ORIGINS_NAME, "").split())
    known: dict[str, SettingSource] = {"file": "file", "stored": "stored"}
    return {name: known.get(origin, "environment") for name, _, origin in words}


def is_secret(field: str) -> bool:
    """Whether a setting may never be shown."""
    return "SecretStr" in str(Settings.model_fields[field].annotation)


def find_mcp_file(settings: Settings) -> Path | None:
    """The file that names servers of the Model Context Protocol, where there is one."""
    if settings.mcp_file is not None:
        return settings.mcp_file
    usual = settings.data_dir / "mcp.json"
    return usual if usual.is_file() else None


def resolve_secret_key(settings: Settings) -> bytes:
    """The key that protects stored secrets: from the environment, else made once beside the data."""
    if settings.secret_key is not None:
        return settings.secret_key.get_secret_value().encode()
    path = settings.data_dir / "secret_key"
    if settings.database_url is not None and not path.is_file():
        reason = "is needed with DATABASE_URL, the same for every process: 32 random characters or more"
        raise BadSettings((SettingsProblem(name=f"{PREFIX}SECRET_KEY", value="", reason=reason),))
    return _read_or_make_key(path)


def _read_or_make_key(path: Path) -> bytes:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not path.exists():
        fresh = path.with_name(f".secret_key.{os.getpid()}.{secrets.token_hex(4)}")
        fresh.touch(mode=0o600)
        fresh.write_text(secrets.token_urlsafe(48))
        try:
            os.link(fresh, path)  # never replaces a key that another process made meanwhile
        except FileExistsError:
            pass
        finally:
            fresh.unlink()
    return path.read_bytes().strip()


def list_setting_names() -> dict[str, str]:
    """Environment name of each setting, by field."""
    names = {}
    for field, spec in Settings.model_fields.items():
        alias = spec.validation_alias
        first = alias.choices[0] if isinstance(alias, AliasChoices) else None
        names[field] = str(first) if first else f"{PREFIX}{field.upper()}"
    return names


def find_unknown_names(environ: Mapping[str, str] | None = None) -> dict[str, str | None]:
    """`EVERTALK_` variables that mean nothing here, each with the nearest name that does."""
    known = {*list_setting_names().values(), *list_secret_file_names(), ENV_FILE_NAME, ORIGINS_NAME}
    given = os.environ if environ is None else environ
    ours = sorted(name for name in given if name.upper().startswith(PREFIX))
    strangers = [name for name in ours if name.upper() not in known]
    return {name: next(iter(difflib.get_close_matches(name.upper(), known, 1)), None) for name in strangers}


def default_data_dir() -> Path:
    """The user's data folder; for root the system's, so that servers can run without its rights."""
    if os.name == "posix" and os.geteuid() == 0:
        return Path("/var/lib/evertalk")
    return Path(platformdirs.user_data_dir("evertalk", appauthor=False))


def default_env_file() -> Path | None:
    """`.env` of the checkout, unless EVERTALK_ENV_FILE names another (or, empty, none)."""
    named = os.environ.get(ENV_FILE_NAME)
    if named is not None:
        return Path(named) if named else None
    return Path(__file__).resolve().parents[2] / ".env"


def _check_mail(address: str) -> str:
    if not _MAIL.fullmatch(address):
        raise ValueError(f"{address!r} is not an address such as anna@example.org")
    return address


def _check_url(url: str, *, schemes: tuple[str, ...], host_needed: bool = True) -> str:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise ValueError("is not a valid URL") from None
    if parts.scheme not in schemes:
        raise ValueError(f"must begin with {' or '.join(f'{scheme}://' for scheme in schemes)}")
    if host_needed and not parts.hostname:
        raise ValueError("has no host name")
    return url


def _check_hosts(url: str) -> None:
    """Several may stand there, each with a port: each is looked at as if it were the only one."""
    parts = urlsplit(url)
    before, at, hosts = parts.netloc.rpartition("@")
    for host in hosts.split(","):
        one = parts._replace(netloc=f"{before}{at}{host}").geturl() if hosts else url
        _check_url(one, schemes=("postgresql", "postgres"), host_needed=False)


def _problem(detail: Any) -> SettingsProblem:
    if not detail["loc"]:
        return SettingsProblem(name="settings", value="", reason=detail["msg"].removeprefix("Value error, "))
    key = str(detail["loc"][0])
    key = next((field for field, name in list_setting_names().items() if name == key), key)
    name = list_setting_names().get(key, key)
    secret = key in Settings.model_fields and is_secret(key)
    value = "(hidden)" if secret else str(detail["input"])[:200]
    return SettingsProblem(name=name, value=value, reason=detail["msg"].removeprefix("Value error, "))
