"""Checked types of settings: a field names one, and its values are read and refused by it.

A check raises ValueError with a reason that follows the name of the setting; it never shows a secret.
"""

from __future__ import annotations

import difflib
import ipaddress
import json
import re
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import parse_qs, urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr
from pydantic_settings import NoDecode

from shared.core.context.overrides import parse_history_turns
from shared.core.identity.oidc import is_safe_address, parse_groups
from shared.core.identity.operators import Role
from shared.core.identity.working_hours import parse_working_hours
from shared.core.presets.catalog import PRESETS
from shared.core.tools.mcp import servers_in
from shared.core.tools.reminders import parse_quiet_hours
from shared.core.tools.web_address import is_this_machine

MIN_SECRET_CHARS = 32
"""Fewest characters of a secret that signs messages."""
# Telegram gives 35 characters behind the colon; a Bot API server of one's own may give more.
_BOT_TOKEN = re.compile(r"[0-9]{3,20}:[A-Za-z0-9_-]{35,80}")
_WEBHOOK_SECRET = re.compile(r"[A-Za-z0-9_-]{32,256}")
_MAIL = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*")
_CHAT_ID = re.compile(r"-?[0-9]{1,16}")
_REDIS_WORDS = frozenset(
    {
        "client_name", "db", "health_check_interval", "max_connections", "retry_on_timeout",
        "socket_connect_timeout", "socket_keepalive", "socket_timeout", "ssl_ca_certs", "ssl_ca_data",
        "ssl_cert_reqs", "ssl_certfile", "ssl_check_hostname", "ssl_keyfile",
    }
)  # fmt: skip
"""Query parameters of REDIS_URL that the client accepts; it fails on others when it connects."""


def parse_chat_ids(words: Sequence[object]) -> tuple[int, ...]:
    """Return chat ids as integers, each once.

    Raises ValueError for 0 or what is not an integer, such as an @name.
    """
    for word in words:
        if isinstance(word, bool) or not _CHAT_ID.fullmatch(str(word)) or not int(str(word)):
            raise ValueError(f"{word!r} is not the number of a person or a group; names cannot be used")
    return tuple(dict.fromkeys(int(str(word)) for word in words))


def parse_json(text: str) -> Any:
    """Return the value of a JSON text. Raises ValueError, whose message does not contain the text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("is not JSON") from None


def read_secrets(secret: SecretStr | str | None) -> dict[str, str]:
    """Return the secrets of a setting by name, from its JSON object; empty if the setting is None or "".

    Raises ValueError, whose message contains no secret.
    """
    text = secret.get_secret_value() if isinstance(secret, SecretStr) else secret
    found = parse_json(text) if text else {}
    if not isinstance(found, dict) or not all(isinstance(one, str) for one in found.values()):
        raise ValueError("must be a JSON object of names and texts")
    return found


def validate_bot_token(token: SecretStr) -> SecretStr:
    """Return the token if it has a bot token's form. Raises ValueError, whose message does not show it."""
    if not _BOT_TOKEN.fullmatch(token.get_secret_value()):
        raise ValueError("is not a bot's token: digits, a colon and 35 characters, as @BotFather gives it")
    return token


def _split(value: object) -> object:
    return tuple(value.replace(",", " ").split()) if isinstance(value, str) else value


def _to_lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _read_chat_ids(value: object) -> object:
    words = value.replace(",", " ").split() if isinstance(value, str) else value
    return parse_chat_ids(words) if isinstance(words, list | tuple) else words


def _read_history_turns(value: object) -> object:
    return parse_history_turns(value) if isinstance(value, str) else value


def _read_groups(value: object) -> object:
    return parse_groups(value) if isinstance(value, str) else value


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


def _check_web_address(url: str) -> str:
    return _check_url(url, schemes=("http", "https")).rstrip("/")


def _check_issuer(url: str) -> str:
    if not (is_safe_address(url) and "?" not in url):
        raise ValueError("must begin with https:// (http:// only on this machine), without ? and #")
    return url


def _check_webhook_address(url: SecretStr) -> SecretStr:
    parts = urlsplit(_check_url(url.get_secret_value(), schemes=("http", "https")))
    if parts.scheme == "http" and not is_this_machine(parts.hostname or ""):
        raise ValueError("must begin with https://, unless it is on this machine (127.0.0.1)")
    if parts.username or parts.password:
        raise ValueError("holds a name or a password; the signature says who sends")
    return url


def _check_mail_server(url: SecretStr) -> SecretStr:
    parts = urlsplit(_check_url(url.get_secret_value(), schemes=("smtp", "smtps")))
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError("is smtp://NAME:PASSWORD@HOST:PORT or smtps://…, with nothing behind")
    return url


def _check_postgres_address(url: SecretStr) -> SecretStr:
    """Check each of several hosts, which may have a port each, as if it were the only one."""
    whole = url.get_secret_value()
    parts = urlsplit(whole)
    before, at, hosts = parts.netloc.rpartition("@")
    for host in hosts.split(","):
        one = parts._replace(netloc=f"{before}{at}{host}").geturl() if hosts else whole
        _check_url(one, schemes=("postgresql", "postgres"), host_needed=False)
    return url


def _check_redis_address(url: SecretStr) -> SecretStr:
    checked = _check_url(url.get_secret_value(), schemes=("redis", "rediss", "unix"), host_needed=False)
    if unknown := parse_qs(urlsplit(checked).query).keys() - _REDIS_WORDS:
        raise ValueError(f"says {', '.join(sorted(unknown))}, which means nothing here")
    return url


def _check_networks(words: tuple[str, ...]) -> tuple[str, ...]:
    for word in words:
        try:
            ipaddress.ip_network(word, strict=False)
        except ValueError:
            raise ValueError(f"{word!r} is not an address or a network such as 10.0.0.0/8") from None
    return words


def _check_origins(words: tuple[str, ...]) -> tuple[str, ...]:
    for word in words:
        parts = urlsplit(word)
        if parts.scheme not in ("http", "https") or not parts.netloc or parts.path not in ("", "/"):
            raise ValueError(f"{word!r} is not an origin such as https://example.org")
    return tuple(word.rstrip("/").lower() for word in words)


def _check_push_origins(words: tuple[str, ...]) -> tuple[str, ...]:
    checked = tuple(_check_url(word.lower(), schemes=("http", "https")).rstrip("/") for word in words)
    if any(urlsplit(word).path or urlsplit(word).query or urlsplit(word).username for word in checked):
        raise ValueError("is a list of https://HOST[:PORT] or http://HOST[:PORT], with nothing behind")
    return checked


def _check_mail(address: str) -> str:
    if not _MAIL.fullmatch(address):
        raise ValueError(f"{address!r} is not an address such as anna@example.org")
    return address


def _check_sender(address: str) -> str:
    return _check_mail(address.strip()) if address.strip() else ""


def _check_recipients(words: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(_check_mail, words)))


def _check_object_list(text: str) -> str:
    found = parse_json(text) if text.strip() else []
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise ValueError("must be a JSON list of objects")
    return text.strip()


def _check_secret_map(secret: SecretStr) -> SecretStr:
    read_secrets(secret)
    return secret


def _check_mcp_servers(servers: SecretStr) -> SecretStr:
    """Refuse MCP servers that start programs: settings of the browser may neither start one nor read
    variables.
    """
    found, problems = servers_in(servers.get_secret_value(), {})
    programs = [f"{server.name}: a program is named in a file only" for server in found if server.command]
    if wrong := [*problems, *programs]:
        raise ValueError("; ".join(wrong))
    return servers


def _check_webhook_secret(secret: SecretStr) -> SecretStr:
    if not _WEBHOOK_SECRET.fullmatch(secret.get_secret_value()):
        raise ValueError("must have 32 to 256 characters, only A-Z, a-z, 0-9, _ and -")
    return secret


def _check_length(secret: SecretStr) -> SecretStr:
    if len(secret.get_secret_value()) < MIN_SECRET_CHARS:
        raise ValueError(f"must have at least {MIN_SECRET_CHARS} characters")
    return secret


def _make_absolute(path: Path) -> Path:
    return path.expanduser().absolute()


def _check_file(path: Path) -> Path:
    if not path.is_file():
        raise ValueError("there is no such file")
    return path


def _check_absolute(path: Path) -> Path:
    if not path.is_absolute():
        raise ValueError("must be an absolute path, such as /mnt/backups")
    return path


def _check_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError("is not a time zone such as UTC or Europe/Berlin") from None
    return name


def _check_working_hours(text: str) -> str:
    parse_working_hours(text, "UTC")
    return text.strip()


def _check_quiet_hours(text: str) -> str:
    parse_quiet_hours(text)
    return text.strip()


def _check_preset(name: str) -> str:
    if name not in PRESETS:
        near = difflib.get_close_matches(name.lower(), PRESETS, 1)
        meant = f"did you mean {near[0]}?" if near else f"choose one of {', '.join(sorted(PRESETS))}"
        raise ValueError(f"is not a preset; {meant}")
    return name


Dollars = Annotated[Decimal, Field(ge=0, max_digits=12, decimal_places=6)]
"""Amount of at least 0 dollars, with at most 6 decimals."""
Tokens = Annotated[int, Field(gt=0, le=100_000_000)]
"""Number of tokens, from 1 to 100 million."""
Turns = Annotated[int, Field(ge=1, le=1_000_000)]
"""Number of turns, rounds or messages, from 1 to a million."""
Port = Annotated[int, Field(ge=0, le=65535)]
"""TCP port; 0 picks a free one."""

Words = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]
"""Texts written as `a, b c` in the environment: separated by commas or blanks."""
FewModels = Annotated[tuple[str, ...], NoDecode, Field(max_length=4), BeforeValidator(_split)]
"""At most four names of models, written like `Words`."""
Networks = Annotated[Words, AfterValidator(_check_networks)]
"""IP addresses and networks such as `10.0.0.0/8`, written like `Words`."""
Origins = Annotated[Words, AfterValidator(_check_origins)]
"""Origins such as `https://example.org`, in small letters, written like `Words`."""
PushOrigins = Annotated[Words, AfterValidator(_check_push_origins)]
"""Origins of push services, which may be http, written like `Words`."""
MailAddresses = Annotated[Words, AfterValidator(_check_recipients)]
"""Mail addresses, each once, written like `Words`."""
ChatIds = Annotated[tuple[int, ...], NoDecode, BeforeValidator(_read_chat_ids)]
"""Telegram's ids of people (positive) and groups (negative), written like `Words`."""
TurnsByChannel = Annotated[tuple[tuple[str, int], ...], NoDecode, BeforeValidator(_read_history_turns)]
"""Turns of history by channel, written `telegram=50,web=200`."""
RolesByGroup = Annotated[tuple[tuple[str, Role], ...], NoDecode, BeforeValidator(_read_groups)]
"""Roles of operators by groups of an identity provider, written `ops=operator,admins=admin`."""

WebAddress = Annotated[str, AfterValidator(_check_web_address)]
"""URL of http or https, without a slash at its end."""
Issuer = Annotated[str, AfterValidator(_check_issuer)]
"""Address of an identity provider: https, or http on this machine."""
WebhookAddress = Annotated[SecretStr, AfterValidator(_check_webhook_address)]
"""Secret URL without user name: https, or http on this machine."""
MailServer = Annotated[SecretStr, AfterValidator(_check_mail_server)]
"""Secret URL of smtp or smtps, with name and password."""
PostgresAddress = Annotated[SecretStr, AfterValidator(_check_postgres_address)]
"""Secret URL of PostgreSQL, with one or several hosts."""
RedisAddress = Annotated[SecretStr, AfterValidator(_check_redis_address)]
"""Secret URL of Redis over TCP, TLS or a Unix socket, with known query parameters only."""
MailAddress = Annotated[str, AfterValidator(_check_sender)]
"""One mail address; "" for none."""

BotToken = Annotated[SecretStr, AfterValidator(validate_bot_token)]
"""Token of a Telegram bot."""
WebhookSecret = Annotated[SecretStr, AfterValidator(_check_webhook_secret)]
"""Secret of 32 to 256 letters, digits, `_` and `-`."""
LongSecret = Annotated[SecretStr, AfterValidator(_check_length)]
"""Secret of at least `MIN_SECRET_CHARS` characters."""
SecretMap = Annotated[SecretStr, AfterValidator(_check_secret_map)]
"""Secret JSON object of secrets by name."""
McpServers = Annotated[SecretStr, AfterValidator(_check_mcp_servers)]
"""Secret JSON of MCP servers at addresses; servers that start programs are refused."""

AbsolutePath = Annotated[Path, AfterValidator(_make_absolute)]
"""Path that is made absolute; `~` is the user's home."""
ExistingFile = Annotated[AbsolutePath, AfterValidator(_check_file)]
"""Absolute path of a file that exists."""
CopyFolder = Annotated[Path, AfterValidator(_check_absolute)]
"""Path that must be written as an absolute one."""

ObjectList = Annotated[str, AfterValidator(_check_object_list)]
"""JSON list of objects, as text in one line; "" for an empty one."""
Zone = Annotated[str, AfterValidator(_check_zone)]
"""Name of a time zone, such as `Europe/Berlin`."""
WorkingHours = Annotated[str, Field(max_length=500), AfterValidator(_check_working_hours)]
"""Text of working hours that can be parsed; "" for none."""
QuietHours = Annotated[str, AfterValidator(_check_quiet_hours)]
"""Text of quiet hours such as `22-8` that can be parsed; "" for none."""
PresetName = Annotated[str, AfterValidator(_check_preset)]
"""Name of an existing preset."""
LogLevel = Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(_to_lower)]
"""Level of the log, in any case."""

TelegramAccess = Literal["pairing", "allowlist", "open"]
TelegramAudience = Literal["personal", "public"]
TelegramMode = Literal["polling", "webhook"]
TelegramGuests = Literal["off", "known", "anyone"]
TelegramSecretary = Literal["off", "drafts", "auto"]
TelegramSecretaryChats = Literal["all", "listed", "unlisted"]
