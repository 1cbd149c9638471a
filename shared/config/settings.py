"""Settings: read from the environment and `.env`, checked once, refused with reasons."""

from __future__ import annotations

import difflib
import functools
import importlib.util
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dotenv import dotenv_values
from pydantic import AliasChoices, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from shared.config.fields.alerts import AlertSettings
from shared.config.fields.connections import ConnectionSettings
from shared.config.fields.context import ContextSettings
from shared.config.fields.declaration import Declaration
from shared.config.fields.hosting import HostingSettings
from shared.config.fields.kinds import MIN_SECRET_CHARS, TelegramAudience
from shared.config.fields.models import ModelSettings
from shared.config.fields.operations import OperationSettings
from shared.config.fields.people import PeopleSettings
from shared.config.fields.recall import RecallSettings
from shared.config.fields.spending import SpendingSettings
from shared.config.fields.telegram import TELEGRAM_API_URL, TelegramSettings
from shared.config.fields.voice import VoiceSettings
from shared.config.secret_files import SUFFIX, read_secret_file
from shared.core.context.settings_conflicts import misfits

PREFIX = "EVERTALK_"
"""Beginning of most environment variables of settings."""
ENV_FILE_NAME = "EVERTALK_ENV_FILE"
"""Environment variable with the path of the `.env` file; empty means none. Tests avoid an operator's file by
it.
"""

ORIGINS_NAME = "EVERTALK_ORIGINS"
"""Environment variable by which `up` passes the sources of settings to its processes, such as
`REDIS_URL=file`.
"""

SettingSource = Literal["environment", "file", "stored", "default"]
"""Source of a setting's value: environment, `.env` file, database or default.

The dashboard also says `start` for a value that was chosen at the start, such as a free port.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsProblem:
    """Setting that cannot be used, by its environment name; `value` is hidden for secrets, so it can be
    printed.
    """

    name: str
    value: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name}={self.value}: {self.reason}" if self.value else f"{self.name}: {self.reason}"


class BadSettings(Exception):
    """The configuration cannot be used; `problems` has every problem."""

    def __init__(self, problems: tuple[SettingsProblem, ...]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


class Settings(
    OperationSettings, AlertSettings, PeopleSettings, SpendingSettings, RecallSettings, VoiceSettings,
    ModelSettings, ContextSettings, TelegramSettings, HostingSettings, ConnectionSettings, BaseSettings,
):  # fmt: skip
    """All settings, each declared in a module of `shared/config/fields`; load them by `load_settings`.

    pydantic lists the fields of the last base first: connections first, operations last.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=True, extra="ignore", frozen=True, populate_by_name=True
    )

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
        """Audience of bots that name none: the one that is set, else the profile."""
        return self.telegram_audience or self.profile

    @property
    def has_handover(self) -> bool:
        """True if hand-over to operators is on: as `handover` says; by default if the profile is `public`."""
        return (self.handover or ("on" if self.profile == "public" else "off")) == "on"

    @property
    def alert_targets(self) -> tuple[str, ...]:
        """Configured targets of alerts: `telegram:CHAT` for each chat, `webhook` and `email`; empty for
        none.
        """
        chats = tuple(f"telegram:{chat}" for chat in self.alert_telegram_chats)
        webhook = ("webhook",) if self.alert_webhook_url is not None else ()
        return (*chats, *webhook, *(("email",) if self.alert_smtp_url is not None else ()))

    @property
    def backups(self) -> Path:
        """Folder of the backups and of the erasure log."""
        return self.backup_dir or self.data_dir / "backups"

    def direct_url(self, database_url: str) -> str:
        """Return the database's address without a connection pooler, for connections that need a server
        session.

        That is EVERTALK_DIRECT_DATABASE_URL if the operator has set it beside DATABASE_URL, else
        `database_url`.
        """
        direct = self.direct_database_url
        return database_url if direct is None or self.database_url is None else direct.get_secret_value()

    @property
    def encoder_socket(self) -> Path:
        """Socket of the encoder's process: the one that is set, else `meaning.sock` in the data folder."""
        return self.meaning_socket or self.data_dir / "meaning.sock"

    @property
    def embedded_postgres(self) -> bool:
        """True if no DATABASE_URL is set, so that `up` starts PostgreSQL."""
        return self.database_url is None

    @property
    def embedded_redis(self) -> bool:
        """True if no REDIS_URL is set, so that `up` starts Valkey."""
        return self.redis_url is None


def load_settings(env_file: Path | None = None, **overrides: Any) -> Settings:
    """Read and check all settings from overrides, environment and `.env` file, in this order of precedence.

    `overrides` are by field name; `env_file` None means the default one. A secret may come from the file that
    NAME_FILE names. Raises BadSettings, which names every problem at once.
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


def load_policy_overrides(settings: Settings) -> dict[str, Any]:
    """Return the fields of the context policy that the operator has set, with their values; unset ones are
    missing.
    """
    names = (field for field, declared in list_declarations().items() if declared.of_policy)
    numbers = {name: getattr(settings, name) for name in names}
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
            reason = f"is needed with {name}_URL: {MIN_SECRET_CHARS} random characters or more"
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


def open_secret(secret: SecretStr | None) -> str:
    """Return the secret as plain text; "" for None."""
    return "" if secret is None else secret.get_secret_value()


def load_environment(env_file: Path | None = None) -> Mapping[str, str]:
    """Return all variables that are set, with the secrets read from files.

    The environment wins over the `.env` file, empty variables count as not set. Variables that name files of
    secrets are left out. Raises BadSettings if such a file cannot be used.
    """
    variables, names = _read_variables(env_file), list_setting_names()
    files = {name.upper() for name in list_secret_file_names()}
    kept = {name: value for name, value in variables.items() if name.upper() not in files}
    return kept | {names[field]: value for field, value in _read_secret_files(variables).items()}


def list_secret_file_names() -> dict[str, str]:
    """Return the settings field that a file of a secret fills, by the variable that names the file."""
    return {f"{name}{SUFFIX}": field for field, name in list_setting_names().items() if is_secret(field)}


def find_secret_files(env_file: Path | None = None) -> dict[str, str]:
    """Return the path of each secret that comes from a file, by settings field."""
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
    """Return where the value of each setting comes from now, by settings field."""
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
    """Return whether a setting, by its field, may never be shown."""
    return "SecretStr" in str(Settings.model_fields[field].annotation)


def find_mcp_file(settings: Settings) -> Path | None:
    """Return the file that names MCP servers: the configured one, else `mcp.json` in the data folder; None
    without it.
    """
    if settings.mcp_file is not None:
        return settings.mcp_file
    usual = settings.data_dir / "mcp.json"
    return usual if usual.is_file() else None


def resolve_secret_key(settings: Settings) -> bytes:
    """Return the key that protects stored secrets: from the settings, else from a file in the data folder.

    With the embedded database the file is created at the first call. Raises BadSettings if neither exists
    with another database.
    """
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


@functools.cache
def list_declarations() -> Mapping[str, Declaration]:
    """Return what each setting declares beside its type, by settings field."""
    return {
        field: next(one for one in spec.metadata if isinstance(one, Declaration))
        for field, spec in Settings.model_fields.items()
    }


def describe_default(field: str) -> str:
    """Return the default of a setting as the tables of docs/settings.md say it."""
    if text := list_declarations()[field].default:
        return text
    default = Settings.model_fields[field].default
    if default is None or default in ((), ""):
        return "none"
    return "off" if default is False else str(default)


def list_setting_names() -> dict[str, str]:
    """Return the environment variable of each setting, by settings field."""
    names = {}
    for field, spec in Settings.model_fields.items():
        alias = spec.validation_alias
        first = alias.choices[0] if isinstance(alias, AliasChoices) else None
        names[field] = str(first) if first else f"{PREFIX}{field.upper()}"
    return names


def find_unknown_names(environ: Mapping[str, str] | None = None) -> dict[str, str | None]:
    """Return the variables that begin with `EVERTALK_` but are no setting, each with the nearest name, None
    without one.

    None as `environ` means the environment of this process.
    """
    known = {*list_setting_names().values(), *list_secret_file_names(), ENV_FILE_NAME, ORIGINS_NAME}
    given = os.environ if environ is None else environ
    ours = sorted(name for name in given if name.upper().startswith(PREFIX))
    strangers = [name for name in ours if name.upper() not in known]
    return {name: next(iter(difflib.get_close_matches(name.upper(), known, 1)), None) for name in strangers}


def default_env_file() -> Path | None:
    """Return the path of the `.env` file: the one that EVERTALK_ENV_FILE names, else that of the checkout.

    None if EVERTALK_ENV_FILE is empty. The file need not exist.
    """
    named = os.environ.get(ENV_FILE_NAME)
    if named is not None:
        return Path(named) if named else None
    return Path(__file__).resolve().parents[2] / ".env"


def _problem(detail: Any) -> SettingsProblem:
    if not detail["loc"]:
        return SettingsProblem(name="settings", value="", reason=detail["msg"].removeprefix("Value error, "))
    key = str(detail["loc"][0])
    key = next((field for field, name in list_setting_names().items() if name == key), key)
    name = list_setting_names().get(key, key)
    secret = key in Settings.model_fields and is_secret(key)
    value = "(hidden)" if secret else str(detail["input"])[:200]
    return SettingsProblem(name=name, value=value, reason=detail["msg"].removeprefix("Value error, "))
