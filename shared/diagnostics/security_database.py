"""Security checks of the database: its role, operators, API keys, sites, bots, agents and the audit log."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from shared.adapters.mcp.tools import list_servers
from shared.adapters.postgres.db.pool import open_pool
from shared.bootstrap.dashboard_stores import build_operators
from shared.config.settings import Settings
from shared.core.identity.api_keys import SCOPES
from shared.diagnostics.checks import Finding, grave, risk, serious, slight
from shared.diagnostics.security_settings import is_public, review_site_origins

_SECONDS = 10.0
"""Seconds that a statement may take."""
_MANY_ADMINS = 3
"""Number of admins above which there is a finding."""
_FACTS = """
SELECT jsonb_build_object(
  'superuser', (SELECT rolsuper FROM pg_roles WHERE rolname = current_user),
  'role', current_user,
  'followers', (SELECT count(*) FROM pg_stat_replication
                 WHERE coalesce(application_name, '') NOT IN ('pg_basebackup', 'pg_receivewal')),
  'waits_for_followers', current_setting('synchronous_standby_names') <> ''
                         AND current_setting('synchronous_commit') NOT IN ('off', 'local'),
  'operators', (SELECT coalesce(jsonb_agg(o ORDER BY o.name), '[]') FROM (
     SELECT name, role, password_hash IS NOT NULL AS has_password,
            EXISTS (SELECT 1 FROM operator_factors f
                     WHERE f.operator_id = operators.id AND f.confirmed_at IS NOT NULL) AS has_second_factor,
            coalesce(last_login_at, created_at) < now() - interval '90 days' AS is_long_away,
            password_hash IS NOT NULL AND NOT EXISTS (
              SELECT 1 FROM audit a WHERE a.action = 'password.set' AND a.at > now() - interval '1 year'
                 AND (a.actor = operators.name OR a.object = 'operator:' || public_id)
            ) AS has_old_password
       FROM operators WHERE disabled_at IS NULL) o),
  'keys', (SELECT coalesce(jsonb_agg(k ORDER BY k.name), '[]') FROM (
     SELECT name, to_jsonb(scopes) AS scopes, expires_at IS NULL AS is_endless,
            site IS NULL AND agent_id IS NULL AS is_unbound,
            coalesce(last_used_at, created_at) < now() - interval '90 days' AS is_unused
       FROM api_keys WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now())) k),
  'sites', (SELECT coalesce(jsonb_agg(s ORDER BY s.name), '[]') FROM (
     SELECT w.name, w.audience, to_jsonb(w.allowed_origins) AS origins, w.config, a.name AS agent
       FROM sites w JOIN agents a ON a.id = w.agent_id) s),
  'bots', (SELECT coalesce(jsonb_agg(b ORDER BY b.username), '[]') FROM (
     SELECT t.username, t.audience, t.access, a.name AS agent
       FROM telegram_bots t JOIN agents a ON a.id = t.agent_id) b),
  'agents', (SELECT coalesce(jsonb_object_agg(name, config), '{}') FROM agents)
)::text
"""
"""SQL that returns all facts for the review as one JSON object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentRows:
    """Rows and facts of the database that the security review examines."""

    role: str
    superuser: bool
    operators: Sequence[Mapping[str, Any]]
    keys: Sequence[Mapping[str, Any]]
    sites: Sequence[Mapping[str, Any]]
    bots: Sequence[Mapping[str, Any]]
    agents: Mapping[str, Mapping[str, Any]]
    followers: int = 0
    """Number of servers that replicate this one.

    Who among them is waited for can only be seen by few roles.
    """
    waits_for_followers: bool = True
    broken_record: int | None = None
    """Number of the first line of the audit log that does not follow from the line before; None if all do."""


NO_ROWS = DeploymentRows(role="", superuser=False, operators=(), keys=(), sites=(), bots=(), agents={})


async def read_deployment_rows(database_url: str) -> DeploymentRows:
    """Return the rows for the security review; `NO_ROWS` for an empty database.

    Raises StorageUnavailable, and asyncpg's errors if the schema is not the newest.
    """
    pool = await open_pool(database_url, size=2)
    operators = build_operators(pool)
    try:
        if not await pool.fetchval("SELECT to_regclass('operators') IS NOT NULL", timeout=_SECONDS):
            return NO_ROWS
        facts = json.loads(await pool.fetchval(_FACTS, timeout=_SECONDS))
        return DeploymentRows(**facts, broken_record=await operators.find_broken_audit_link())
    finally:
        await operators.close()
        await pool.close()


def review_database(settings: Settings, stored: DeploymentRows) -> Iterator[Finding]:
    """Yield the findings about a deployment's rows."""
    yield from _record(settings, stored)
    if stored.followers and not stored.waits_for_followers:
        yield serious(
            "a standby follows the database, but no commit waits for it",
            "After a promotion, messages acknowledged just before may be lost.",
            "ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)' (docs/server.md, A standby)",
        )
    yield from _check_operators(settings, stored.operators)
    for key in stored.keys:
        yield from _check_key(key)
    for site in stored.sites:
        yield from review_site_origins(str(site["name"]), tuple(site["origins"]))
        yield from _check_site(settings, site)
    for bot in stored.bots:
        yield from _check_bot(bot)
    yield from _check_agents(settings, stored)


def _record(settings: Settings, stored: DeploymentRows) -> Iterator[Finding]:
    """Yield findings about the audit log and the role of the connection."""
    if stored.broken_record is not None:
        yield grave(
            f"the audit log is broken at line {stored.broken_record}",
            "A line was changed or removed in the database itself.",
            "Compare the log with the newest backup, and find out who else can write to the database",
        )
    if stored.superuser and settings.database_url is not None:
        yield serious(
            f"Evertalk connects to the database as {stored.role}, a superuser",
            "A vulnerability in one statement would expose the whole server with its files and programs.",
            "run ./evertalk database roles | psql, then use evertalk_app in DATABASE_URL (docs/server.md)",
        )


def _check_operators(settings: Settings, operators: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    admins = [str(one["name"]) for one in operators if one["role"] == "admin"]
    if len(admins) > _MANY_ADMINS:
        yield slight(
            f"{len(admins)} admins: {', '.join(admins)}",
            "Admins can add operators and erase people; most operators only need to read or answer.",
            "on the page Operators, give those who need less the role operator or viewer",
        )
    for one in operators:
        if one["is_long_away"]:
            yield risk(
                "serious" if one["role"] == "admin" else "slight",
                f"{one['name']} ({one['role']}) has not logged in for 90 days",
                "The misuse of an unused account goes unnoticed.",
                f"./evertalk operator revoke '{one['name']}'",
            )
        elif one["has_old_password"]:
            yield slight(
                f"the password of {one['name']} is older than a year",
                "It may have leaked since then.",
                f"./evertalk operator passwd '{one['name']}'",
            )
    if settings.oidc_issuer is None and is_public(settings):
        alone = [one for one in operators if one["has_password"] and not one["has_second_factor"]]
        names = [str(one["name"]) for one in alone]
        if names:
            yield slight(
                f"{', '.join(names)} log in with only a password, on a public address",
                "A password that was seen or leaked is enough to log in.",
                "add a second factor on the page Account, or use EVERTALK_OIDC_ISSUER",
            )


def _check_key(key: Mapping[str, Any]) -> Iterator[Finding]:
    everything = set(key["scopes"]) >= set(SCOPES)
    name = str(key["name"])
    if everything and key["is_unbound"]:
        yield risk(
            "grave" if key["is_endless"] else "serious",
            f"the key {name} has all scopes everywhere{' and never expires' if key['is_endless'] else ''}",
            "Anyone who finds it in a log or repository can read and write all conversations.",
            f"./evertalk key revoke '{name}', then a new one with few scopes, --site and --days",
        )
    elif key["is_endless"]:
        yield serious(
            f"the key {name} never expires",
            "A forgotten key stays valid for ever.",
            f"./evertalk key revoke '{name}', then a new one with --days 365",
        )
    if key["is_unused"]:
        yield slight(
            f"the key {name} has not been used for 90 days",
            "An unused key is only a risk.",
            f"./evertalk key revoke '{name}'",
        )


def _check_site(settings: Settings, site: Mapping[str, Any]) -> Iterator[Finding]:
    name = str(site["name"])
    config = site["config"] if isinstance(site["config"], Mapping) else {}
    personal = "public" not in (site["audience"], settings.profile)
    if personal and is_public(settings) and config.get("verified") != "required":
        yield risk(
            "grave" if not site["origins"] else "serious",
            f"the site {name} is personal, but anyone can open it at {settings.public_url}",
            "Strangers can use your personal assistant with its tools, files and budget.",
            f'./evertalk site edit {name}: "audience": "public", or "verified": "required"',
        )
    if config.get("webview") and config.get("verified") != "required":
        yield slight(
            f"the site {name} admits pages that do not name their origin (webview)",
            "Any page can hide its origin; then only limits and caps protect the site.",
            f'./evertalk site edit {name}: "webview": false, or "verified": "required"',
        )


def _check_bot(bot: Mapping[str, Any]) -> Iterator[Finding]:
    if bot["access"] == "open" and bot["audience"] == "personal":
        yield serious(
            f"anyone who finds @{bot['username']} can use it as your personal assistant",
            "They spend your money and can use all tools of its agent.",
            "set access: pairing, or audience: public, in this bot's settings",
        )


def _check_agents(settings: Settings, stored: DeploymentRows) -> Iterator[Finding]:
    """Yield findings about tools that strangers can use, and tools that can send text elsewhere."""
    servers, _ = list_servers(settings)
    places: dict[str, list[str]] = {}
    for row, place in (*((one, f"site {one['name']}") for one in stored.sites),
                       *((one, f"@{one['username']}") for one in stored.bots)):  # fmt: skip
        if "public" in (row["audience"], settings.profile):
            places.setdefault(str(row["agent"]), []).append(place)
    for name, where in places.items():
        tools = stored.agents.get(name, {}).get("tools")
        tools = tools if isinstance(tools, Mapping) else {}
        lent = ", ".join(server.name for server in servers)
        if lent and not tools.get("allow"):
            yield serious(
                f"strangers at {', '.join(where)} can use all tools of {lent}",
                "These tools act with your rights at that server for anyone who asks.",
                f'./evertalk agent edit {name}: "tools": {{"allow": [the few that strangers need]}}',
            )
        if _may_fetch(tools):
            yield risk(
                "serious" if lent else "slight",
                f"strangers at {', '.join(where)} can make the assistant fetch pages (fetch_url)",
                "A page can trick the assistant into sending text away inside an address.",
                f'./evertalk agent edit {name}: "tools": {{"deny": ["fetch_url"]}}',
            )


def _may_fetch(tools: Mapping[str, Any]) -> bool:
    """Return whether an agent's tool rules allow `fetch_url`."""
    allowed, denied = tools.get("allow"), tools.get("deny") or ()
    let_in = not allowed or any(fnmatchcase("fetch_url", str(one)) for one in allowed)
    return let_in and not any(fnmatchcase("fetch_url", str(one)) for one in denied)
