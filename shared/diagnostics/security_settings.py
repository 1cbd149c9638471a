"""What settings alone tell of a deployment's safety: doors, secrets, and what travels in the open."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from shared.config.settings import Settings, list_setting_names
from shared.diagnostics.security_findings import Grade, HostLocation, SecurityFinding, classify_host

_TOO_WIDE = {4: 8, 6: 16}
_FEW_CHARACTERS = 10
_MANY_CHARACTERS = 24
_GUESSED = ("changeme", "password", "secret", "example", "evertalk", "0123456789", "abcdefgh")
_ENCRYPTED = ("require", "verify-ca", "verify-full")
_BY_NEARNESS: dict[HostLocation, Grade] = {"here": "slight", "around": "serious", "away": "grave"}
_FAR = tuple(_BY_NEARNESS)
_OUTSIDE = ("public_url", "anthropic_base_url", "telegram_api_url", "otlp_endpoint")


def review_settings(settings: Settings, *, in_container: bool) -> Iterator[SecurityFinding]:
    yield from _review_addresses(settings, in_container=in_container)
    yield from _proxies(settings)
    yield from _origins(settings.allowed_origins, "EVERTALK_ALLOWED_ORIGINS")
    yield from _secrets(settings)
    yield from _servers(settings)
    yield from _review_outbound_urls(settings)
    yield from _review_choices(settings)


def is_public(settings: Settings) -> bool:
    """Whether somebody from elsewhere can open the page."""
    return classify_host(urlsplit(settings.public_url or "").hostname or "") == "away"


def _review_addresses(settings: Settings, *, in_container: bool) -> Iterator[SecurityFinding]:
    encrypted = (settings.public_url or "").startswith("https://")
    if classify_host(settings.http_host) == "here" and settings.http_host:
        return
    if in_container:
        yield SecurityFinding(
            grade="slight",
            what=f"the web process listens at {settings.http_host or 'every address'} of its container",
            why="Whoever publishes that port to the world goes around the certificate.",
            change="In docker-compose.yml publish it to this machine only: ports: ['127.0.0.1:8080:8080']",
        )
        return
    yield SecurityFinding(
        grade="serious" if encrypted else "grave",
        what=f"the web process listens at {settings.http_host or 'every address'}, without encryption",
        why="Words and passwords can be read and changed on the way; a certificate can be gone around.",
        change="EVERTALK_HTTP_HOST=127.0.0.1, behind a proxy with a certificate, and EVERTALK_PUBLIC_URL=https://…",
    )


def _proxies(settings: Settings) -> Iterator[SecurityFinding]:
    for word in settings.trusted_proxies:
        network = ipaddress.ip_network(word, strict=False)
        if network.prefixlen < _TOO_WIDE[network.version]:
            yield SecurityFinding(
                grade="grave",
                what=f"EVERTALK_TRUSTED_PROXIES={word} trusts half the world",
                why="Whoever comes from there may claim any address, and no limit by address holds for them.",
                change="EVERTALK_TRUSTED_PROXIES= the addresses of your own proxies, such as 127.0.0.1",
            )
    if is_public(settings) and not settings.trusted_proxies:
        yield SecurityFinding(
            grade="serious",
            what="there is a public address and no trusted proxy",
            why="Behind a proxy all share one address: one flood, or five wrong passwords, shuts out all.",
            change="EVERTALK_TRUSTED_PROXIES=127.0.0.1 (the proxy), which sends X-Forwarded-For",
        )


def _origins(words: tuple[str, ...], where: str) -> Iterator[SecurityFinding]:
    for word in words:
        parts = urlsplit(word if "://" in word else f"https://{word}")
        host = parts.hostname or ""
        if "*" in host and host.removeprefix("*.").count(".") == 0:
            yield SecurityFinding(
                grade="grave",
                what=f"{where} allows {word}",
                why="Anybody can have a page below that name, and so use this deployment and its money.",
                change=f"{where}: name the pages, such as https://shop.example.org or https://*.example.org",
            )
        elif parts.scheme == "http" and classify_host(host) == "away":
            yield SecurityFinding(
                grade="serious",
                what=f"{where} allows {word}",
                why="Who is on the way can put a script of theirs into that page, and it may use the chat.",
                change=f"{where}: https://{host} instead",
            )


def review_site_origins(name: str, origins: tuple[str, ...]) -> Iterator[SecurityFinding]:
    yield from _origins(origins, f"the site {name} (./evertalk site edit {name})")


def _secrets(settings: Settings) -> Iterator[SecurityFinding]:
    names = list_setting_names()
    for field in ("secret_key", "telegram_webhook_secret", "metrics_token", "alert_webhook_secret"):
        value = getattr(settings, field)
        if value is not None and (why := explain_weakness(value.get_secret_value())):
            yield SecurityFinding(
                grade="grave",
                what=f"{names[field]} can be guessed: {why}",
                why="Whoever guesses it passes for you, or reads what it keeps sealed.",
                change=f"{names[field]}= what `openssl rand -hex 32` prints",
            )


def explain_weakness(secret: str) -> str:
    """Nothing where it looks as if a machine had made it."""
    plain = secret.casefold()
    if len(secret) < _MANY_CHARACTERS:
        return f"it has {len(secret)} characters"
    if len(set(secret)) < _FEW_CHARACTERS:
        return "it has few different characters"
    if any(secret == secret[:size] * (len(secret) // size) for size in range(1, len(secret) // 2 + 1)):
        return "it repeats itself"
    known = next((word for word in _GUESSED if word in plain), None)
    return f"it holds a word that is tried first ({known})" if known else ""


def _servers(settings: Settings) -> Iterator[SecurityFinding]:
    if settings.database_url is not None:
        yield from _database(settings.database_url.get_secret_value(), "DATABASE_URL")
        if settings.direct_database_url is not None:
            direct = settings.direct_database_url.get_secret_value()
            yield from _database(direct, list_setting_names()["direct_database_url"])
    if settings.redis_url is not None:
        yield from _redis(settings.redis_url.get_secret_value())


def _database(url: str, setting: str) -> Iterator[SecurityFinding]:
    parts = urlsplit(url)
    asked = parse_qs(parts.query)
    hosts = (asked.get("host", [""])[0] or parts.netloc.rpartition("@")[2]).split(",")
    host = max((_strip_port(one) for one in hosts), key=lambda one: _FAR.index(classify_host(one)))
    near = classify_host(host)
    if near == "here":
        return
    if asked.get("sslmode", ["prefer"])[0] not in _ENCRYPTED:
        yield SecurityFinding(
            grade="grave" if near == "away" else "slight",
            what=f"{setting} does not insist on encryption to {host}",
            why="Every word that people say passes there, and the password with it.",
            change=f"{setting}=…?sslmode=verify-full, with &sslrootcert=FILE for an authority of your own",
        )
    password = unquote(parts.password or "")
    if len(password) < _MANY_CHARACTERS // 2:
        yield SecurityFinding(
            grade=_BY_NEARNESS[near],
            what=f"the password in {setting} is short" if password else f"{setting} has no password",
            why="Whoever reaches the server reads all conversations.",
            change=f"ALTER ROLE … PASSWORD with what `openssl rand -hex 24` prints, then {setting}",
        )


def _strip_port(host: str) -> str:
    return urlsplit(f"//{host}").hostname or host


def _redis(url: str) -> Iterator[SecurityFinding]:
    parts = urlsplit(url)
    near = classify_host(parts.hostname or "") if parts.scheme != "unix" else "here"
    if not parts.password and parts.scheme != "unix":
        yield SecurityFinding(
            grade=_BY_NEARNESS[near],
            what="REDIS_URL has no password",
            why="Whoever reaches the server hears answers being written, and can stop or forge jobs' bells.",
            change="requirepass (or an ACL user) in Redis, then REDIS_URL=redis://:PASSWORD@HOST:6379/0",
        )
    if parts.scheme == "redis" and near == "away":
        yield SecurityFinding(
            grade="grave",
            what=f"REDIS_URL is not encrypted to {parts.hostname}",
            why="Answers pass there while they are written, and the password with them.",
            change="REDIS_URL=rediss://…",
        )


def _review_outbound_urls(settings: Settings) -> Iterator[SecurityFinding]:
    names = list_setting_names()
    for field in _OUTSIDE:
        parts = urlsplit(str(getattr(settings, field) or ""))
        if parts.scheme == "http" and classify_host(parts.hostname or "") == "away":
            yield SecurityFinding(
                grade="grave",
                what=f"{names[field]} begins with http://",
                why="Words and keys can be read and changed by everybody on the way.",
                change=f"{names[field]}=https://{parts.netloc}{parts.path}",
            )


def _review_choices(settings: Settings) -> Iterator[SecurityFinding]:
    strangers = is_public(settings) or settings.profile == "public"
    if settings.crash_point:
        yield SecurityFinding(
            grade="grave",
            what="EVERTALK_CRASH_POINT is set",
            why="It ends processes on purpose; only tests need it.",
            change="Take EVERTALK_CRASH_POINT out of the environment and .env",
        )
    if settings.telegram_access == "open" and settings.profile == "personal":
        yield SecurityFinding(
            grade="serious",
            what="anybody who finds the bot may talk with it, as with your own assistant",
            why="They spend your money, and reach whatever tools its agent has.",
            change="EVERTALK_TELEGRAM_ACCESS=pairing, or EVERTALK_PROFILE=public",
        )
    if strangers and settings.retention_days is None:
        yield SecurityFinding(
            grade="slight",
            what="conversations of strangers are kept until they ask to be forgotten",
            why="What is not there cannot be stolen, and laws want a time.",
            change="EVERTALK_RETENTION_DAYS=365",
        )
    if settings.log_level == "debug":
        yield SecurityFinding(
            grade="slight",
            what="the log says everything (EVERTALK_LOG_LEVEL=debug)",
            why="It has no words of people, but more of who did what when than anybody needs.",
            change="EVERTALK_LOG_LEVEL=info",
        )


def is_in_container() -> bool:
    return any(Path(mark).exists() for mark in ("/.dockerenv", "/run/.containerenv"))
