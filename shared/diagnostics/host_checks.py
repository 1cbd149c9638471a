"""What the doctor says of several hosts: whether they are set up alike, and which files differ."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shared.diagnostics.findings import Finding

_NAMED = 12
_COPY = (
    "Copy it from one host to the others (rsync -a): until then an answer depends on the host that gives it."
)


async def check_hosts(database_url: str) -> Sequence[Finding]:
    """Says nothing where one host serves alone. Hosts tell of themselves with each heartbeat."""
    from shared.adapters.postgres.db.connecting import connect

    connection = await connect(database_url)
    try:
        rows = await connection.fetch(_LIVING)
    finally:
        await connection.close(timeout=5)
    by_role: dict[str, dict[str, Mapping[str, Any]]] = defaultdict(dict)
    for row in rows:
        told = json.loads(row["told"])
        by_role[row["role"]][told["place"]] = told
    return list(compare_hosts(by_role))


def compare_hosts(by_role: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Iterator[Finding]:
    """Of each role by place what its process told; roles are given different settings, hosts are not."""
    places = sorted({place for told in by_role.values() for place in told})
    if len(places) < 2:
        return
    if len({told["key"] for role in by_role.values() for told in role.values()}) > 1:
        yield Finding(
            level="fail",
            what=f"the hosts have different secret keys: {', '.join(places)}",
            advice="EVERTALK_SECRET_KEY must be the same: what one host seals the others cannot read.",
        )
        return
    differ = sorted({name for role in by_role.values() for name in _different(role.values(), "settings")})
    if differ:
        yield Finding(
            level="warn",
            what=f"settings differ between {', '.join(places)}: {', '.join(differ[:_NAMED])}",
            advice="Give every host the same .env but for its folder, its addresses and its log.",
        )
    files = sorted({name for role in by_role.values() for name in _different(role.values(), "files")})
    for name in files[:_NAMED]:
        have = sorted(
            {place for role in by_role.values() for place, told in role.items() if name in told["files"]}
        )
        what = f"{name} is not the same on every host: {', '.join(have)}"
        yield Finding(level="warn", what=what, advice=_COPY)
    if not differ and not files:
        yield Finding(level="ok", what=f"{len(places)} hosts, set up alike: {', '.join(places)}")


def _different(told: Any, part: str) -> set[str]:
    marks = [one[part] for one in told]
    return {name for name in set().union(*marks) if len({one.get(name) for one in marks}) > 1}


_LIVING = """
SELECT role, (health -> 'same')::text AS told FROM workers
 WHERE stopped_at IS NULL AND beat > now() - interval '30 seconds' AND health ? 'same'
 ORDER BY id
"""
