"""Trial writes of the doctor: whether PostgreSQL and Redis accept what processes store and announce."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shared.adapters.postgres.db.connecting import open_connection
from shared.adapters.postgres.db.write_probe import RefusalKind, WriteRefusal, probe_writes
from shared.adapters.redis.write_probe import REDIS_REFUSALS, RedisRefused, probe_redis_writes
from shared.config.settings import Settings
from shared.diagnostics.checks import Finding

_ADVICE: Mapping[RefusalKind, str] = {
    "standby": "DATABASE_URL leads to a standby. Promote it, or name the primary; with several hosts add "
    "target_session_attrs=primary.",
    "disk_full": "The disk of PostgreSQL is full: free space there; see docs/runbook.md, A full disk.",
    "forbidden": "Restore the rights of the role in DATABASE_URL: ./evertalk migrate.",
    "other": "See docs/runbook.md, A database that takes no writes.",
}
_READ_ONLY = (
    "default_transaction_read_only is on ({source}). A managed server sets it when its disk is full: free "
    "space there. Otherwise: {reset}"
)
_RESETS = {
    "database": "ALTER DATABASE … RESET default_transaction_read_only;",
    "user": "ALTER ROLE … RESET default_transaction_read_only;",
    "database user": "ALTER ROLE … IN DATABASE … RESET default_transaction_read_only;",
    "client": "remove it from the options of DATABASE_URL.",
}
_RESET_ALL = "ALTER SYSTEM RESET default_transaction_read_only; SELECT pg_reload_conf();"


async def check_database_writes(settings: Settings, url: str) -> Sequence[Finding]:
    """Write like a heartbeat and roll back; report the server's reason if it refuses.

    No finding without a schema.
    """
    async with open_connection(url) as connection:
        refused = await probe_writes(connection)
    if refused is None:
        return [Finding("ok", "PostgreSQL accepts writes")]
    if refused.kind == "no_schema":
        return []  # the check of the schema says what to do
    return [Finding("fail", f"PostgreSQL rejects writes: {refused.words}", _advise(refused))]


def _advise(refused: WriteRefusal) -> str:
    match refused.kind:
        case "read_only":
            reset = _RESETS.get(refused.source, _RESET_ALL)
            return _READ_ONLY.format(source=f"set by: {refused.source}", reset=reset)
        case "commit_waits":
            return (
                f"Commits wait for a standby: synchronous_standby_names is '{refused.awaited}'. Start that "
                "standby, or remove its name."
            )
    return _ADVICE.get(refused.kind, _ADVICE["other"])


async def check_redis_writes(settings: Settings, url: str) -> Sequence[Finding]:
    """Set a key, publish a message and receive it; report the server's reason if it refuses."""
    try:
        await probe_redis_writes(url)
    except RedisRefused as refused:
        advice = REDIS_REFUSALS[refused.kind]
        return [Finding("fail", f"Redis rejects {refused.deed}: {refused.words}", advice)]
    return [Finding("ok", "Redis accepts keys and announcements")]
