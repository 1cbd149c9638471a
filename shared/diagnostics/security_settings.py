"""Security checks of settings: open addresses, weak secrets and unencrypted connections."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qs, unquote, urlsplit

from shared.config.settings import Settings, list_setting_names
from shared.core.tools.web_address import is_local_name
from shared.diagnostics.checks import Finding, Level, grave, risk, serious, slight

HostLocation = Literal["here", "around", "away"]
"""Where a host is: this machine, a private network, or the internet."""
_TOO_WIDE = {4: 8, 6: 16}
"""Prefix length by IP version below which a trusted network is too large."""
_FEW_CHARACTERS = 10
"""Minimum of different characters in a secret."""
_MANY_CHARACTERS = 24
"""Minimum length of a secret."""
_GUESSED = ("changeme", "password", "secret", "example", "evertalk", "0123456789", "abcdefgh")
"""Words that attackers try first."""
_ENCRYPTED = ("require", "verify-ca", "verify-full")
_BY_NEARNESS: dict[HostLocation, Level] = {"here": "slight", "around": "serious", "away": "grave"}
_FAR = tuple(_BY_NEARNESS)
_OUTSIDE = (
    "public_url", "anthropic_base_url", "openai_base_url", "telegram_api_url", "otlp_endpoint",
    "transcribe_url", "speech_url", "picture_url", "rerank_url", "embeddings_url",
)  # fmt: skip
"""Settings with addresses of other servers."""


def review_settings(settings: Settings, *, in_container: bool) -> Iterator[Finding]:
    """Yield the findings about the settings of a deployment."""
    yield from _review_addresses(settings, in_container=in_container)
    yield from _proxies(settings)
    yield from _origins(settings.allowed_origins, "EVERTALK_ALLOWED_ORIGINS")
    yield from _secrets(settings)
    yield from _servers(settings)
    yield from _review_outbound_urls(settings)
    yield from _review_choices(settings)


def classify_host(host: str) -> HostLocation:
    """Return where a host is: `here` on this machine, `around` in a private network, `away` on the internet.

    An empty name and the path of a socket are `here`. Names are not resolved.
    """
    name = host.strip("[]").rstrip(".").lower()
    if name in ("", "localhost") or name.startswith("/") or name.endswith(".localhost"):
        return "here"
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return "around" if is_local_name(name) else "away"
    if address.is_loopback:
        return "here"
    return "around" if address.is_private else "away"


def is_public(settings: Settings) -> bool:
    """Return whether `public_url` names a host on the internet; False without it.

    Reachability is not tested.
    """
    return classify_host(urlsplit(settings.public_url or "").hostname or "") == "away"


def _review_addresses(settings: Settings, *, in_container: bool) -> Iterator[Finding]:
    encrypted = (settings.public_url or "").startswith("https://")
    if classify_host(settings.http_host) == "here" and settings.http_host:
        return
    if in_container:
        yield slight(
            f"the web process listens at {settings.http_host or 'every address'} of its container",
            "Publishing that port to the internet bypasses the certificate.",
            "In docker-compose.yml publish it to this machine only: ports: ['127.0.0.1:8080:8080']",
        )
        return
    yield risk(
        "serious" if encrypted else "grave",
        f"the web process listens at {settings.http_host or 'every address'}, without encryption",
        "Messages and passwords can be read in transit, and a certificate can be bypassed.",
        "EVERTALK_HTTP_HOST=127.0.0.1, behind a proxy with a certificate, and EVERTALK_PUBLIC_URL=https://…",
    )


def _proxies(settings: Settings) -> Iterator[Finding]:
    for word in settings.trusted_proxies:
        network = ipaddress.ip_network(word, strict=False)
        if network.prefixlen < _TOO_WIDE[network.version]:
            yield grave(
                f"EVERTALK_TRUSTED_PROXIES={word} trusts a large part of the internet",
                "Those clients can claim any address, so limits by address do not hold for them.",
                "EVERTALK_TRUSTED_PROXIES= the addresses of your own proxies, such as 127.0.0.1",
            )
    if is_public(settings) and not settings.trusted_proxies:
        yield serious(
            "there is a public address but no trusted proxy",
            "Behind a proxy all share one address: five wrong passwords lock out everyone.",
            "EVERTALK_TRUSTED_PROXIES=127.0.0.1 (the proxy), which sends X-Forwarded-For",
        )


def _origins(words: tuple[str, ...], where: str) -> Iterator[Finding]:
    for word in words:
        parts = urlsplit(word if "://" in word else f"https://{word}")
        host = parts.hostname or ""
        if "*" in host and host.removeprefix("*.").count(".") == 0:
            yield grave(
                f"{where} allows {word}",
                "Anyone can create a page under that name and spend this deployment's money.",
                f"{where}: list the origins, such as https://shop.example.org or https://*.example.org",
            )
        elif parts.scheme == "http" and classify_host(host) == "away":
            yield serious(
                f"{where} allows {word}",
                "Anyone on the network path can inject a script into that page and use the chat.",
                f"{where}: https://{host} instead",
            )


def review_site_origins(name: str, origins: tuple[str, ...]) -> Iterator[Finding]:
    """Yield findings about the allowed origins of a site."""
    yield from _origins(origins, f"the site {name} (./evertalk site edit {name})")


def _secrets(settings: Settings) -> Iterator[Finding]:
    names = list_setting_names()
    for field in (
        "secret_key", "telegram_webhook_secret", "metrics_token", "alert_webhook_secret",
        "compaction_hook_secret",
    ):  # fmt: skip
        value = getattr(settings, field)
        if value is not None and (why := explain_weakness(value.get_secret_value())):
            yield grave(
                f"{names[field]} can be guessed: {why}",
                "An attacker who guesses it can impersonate you or read what it encrypts.",
                f"{names[field]}= the output of `openssl rand -hex 32`",
            )


def explain_weakness(secret: str) -> str:
    """Return why a secret is weak; empty if it looks random."""
    plain = secret.casefold()
    if len(secret) < _MANY_CHARACTERS:
        return f"it has {len(secret)} characters"
    if len(set(secret)) < _FEW_CHARACTERS:
        return "it uses too few different characters"
    if any(secret == secret[:size] * (len(secret) // size) for size in range(1, len(secret) // 2 + 1)):
        return "it repeats itself"
    known = next((word for word in _GUESSED if word in plain), None)
    return f"it contains a word that attackers try first ({known})" if known else ""


def _servers(settings: Settings) -> Iterator[Finding]:
    if settings.database_url is not None:
        yield from _database(settings.database_url.get_secret_value(), "DATABASE_URL")
        if settings.direct_database_url is not None:
            direct = settings.direct_database_url.get_secret_value()
            yield from _database(direct, list_setting_names()["direct_database_url"])
    if settings.redis_url is not None:
        yield from _redis(settings.redis_url.get_secret_value())


def _database(url: str, setting: str) -> Iterator[Finding]:
    parts = urlsplit(url)
    asked = parse_qs(parts.query)
    hosts = (asked.get("host", [""])[0] or parts.netloc.rpartition("@")[2]).split(",")
    host = max((_strip_port(one) for one in hosts), key=lambda one: _FAR.index(classify_host(one)))
    near = classify_host(host)
    if near == "here":
        return
    if asked.get("sslmode", ["prefer"])[0] not in _ENCRYPTED:
        yield risk(
            "grave" if near == "away" else "slight",
            f"{setting} does not require encryption to {host}",
            "All messages and the password pass over that connection.",
            f"{setting}=…?sslmode=verify-full, with &sslrootcert=FILE for your own certificate authority",
        )
    password = unquote(parts.password or "")
    if len(password) < _MANY_CHARACTERS // 2:
        yield risk(
            _BY_NEARNESS[near],
            f"the password in {setting} is short" if password else f"{setting} has no password",
            "Anyone who can connect to the server can read all conversations.",
            f"ALTER ROLE … PASSWORD with the output of `openssl rand -hex 24`, then change {setting}",
        )


def _strip_port(host: str) -> str:
    return urlsplit(f"//{host}").hostname or host


def _redis(url: str) -> Iterator[Finding]:
    parts = urlsplit(url)
    near = classify_host(parts.hostname or "") if parts.scheme != "unix" else "here"
    if not parts.password and parts.scheme != "unix":
        yield risk(
            _BY_NEARNESS[near],
            "REDIS_URL has no password",
            "Anyone who can connect can read streaming answers and forge job announcements.",
            "set set requirepass (or an ACL user) in Redis, then REDIS_URL=redis://:PASSWORD@HOST:6379/0",
        )
    if parts.scheme == "redis" and near == "away":
        yield grave(
            f"REDIS_URL does not encrypt the connection to {parts.hostname}",
            "Answers pass over that connection as they stream, and so does the password.",
            "REDIS_URL=rediss://…",
        )


def _review_outbound_urls(settings: Settings) -> Iterator[Finding]:
    names = list_setting_names()
    for field in _OUTSIDE:
        parts = urlsplit(str(getattr(settings, field) or ""))
        if parts.scheme == "http" and classify_host(parts.hostname or "") == "away":
            yield grave(
                f"{names[field]} begins with http://",
                "Messages and keys can be read and changed by anyone on the network path.",
                f"{names[field]}=https://{parts.netloc}{parts.path}",
            )


def _review_choices(settings: Settings) -> Iterator[Finding]:
    strangers = is_public(settings) or settings.profile == "public"
    if settings.crash_point:
        yield grave(
            "EVERTALK_CRASH_POINT is set",
            "It ends processes on purpose; only tests need it.",
            "Remove EVERTALK_CRASH_POINT from the environment and .env",
        )
    if settings.telegram_access == "open" and settings.profile == "personal":
        yield serious(
            "anyone who finds the bot can use it as your personal assistant",
            "They spend your money and can use all tools of its agent.",
            "EVERTALK_TELEGRAM_ACCESS=pairing, or EVERTALK_PROFILE=public",
        )
    if strangers and settings.retention_days is None:
        yield slight(
            "conversations of strangers are kept until they ask for erasure",
            "Deleted data cannot be stolen, and privacy laws require a limit.",
            "EVERTALK_RETENTION_DAYS=365",
        )
    if settings.log_level == "debug":
        yield slight(
            "the log level is debug (EVERTALK_LOG_LEVEL=debug)",
            "The log holds no messages, but more about who did what and when than operations need.",
            "EVERTALK_LOG_LEVEL=info",
        )


def is_in_container() -> bool:
    """Return whether this process runs in a container of Docker or Podman."""
    return any(Path(mark).exists() for mark in ("/.dockerenv", "/run/.containerenv"))
