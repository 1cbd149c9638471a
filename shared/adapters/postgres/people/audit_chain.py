"""Check of the audit log's hash chain, in which each entry's hash includes that of the entry before."""

from __future__ import annotations

from typing import Any

from shared.adapters.postgres.db.page_read import read_page
from shared.adapters.postgres.db.pool import Named, Pool

CHAIN_ROWS = 50_000
"""Maximum entries that one statement checks."""


async def check_chain(pool: Pool) -> dict[str, Any]:
    """Recompute all hashes of the audit log and compare them; changes nothing.

    Returns `{state, entries, through, broken_at}`: state is empty, intact or broken, `through` is `{id, at}`
    of the last entry up to which the chain holds, and `broken_at` that of the first broken one; each None
    without one. Raises StorageUnavailable. Each batch is one statement, so that none reaches the statement
    timeout.
    """
    entries, through, broken, after, former = 0, None, None, 0, b""
    while (
        batch := await read_page(
            pool,
            *_CHAINED(
                after=after,
                former=former,
                limit=CHAIN_ROWS,
            ),
        )
    )["entries"]:
        entries += batch["entries"]
        if broken is None:
            broken, through = batch["broken"], batch["through"] or through
        after, former = batch["last"], bytes.fromhex(batch["hash"])
    state = "empty" if not entries else "intact" if broken is None else "broken"
    return {"state": state, "entries": entries, "through": through, "broken_at": broken}


# The hash is computed as in `append_audit`.
_CHAINED = Named("""
WITH batch AS (SELECT * FROM audit WHERE id > :after ORDER BY id LIMIT :limit),
links AS (
  SELECT p.id, p.at, p.hash, p.prev_hash = p.prev AND p.hash =
         sha256(p.prev || convert_to(jsonb_build_array(
           extract(epoch FROM p.at)::text, p.actor, p.action, p.object, p.detail)::text, 'UTF8')) AS holds
    FROM (SELECT *, coalesce(lag(hash) OVER (ORDER BY id), :former::bytea) AS prev FROM batch) p
), counted AS (
  SELECT count(*) AS entries, min(id) FILTER (WHERE NOT holds) AS broken, max(id) AS last FROM links)
SELECT jsonb_build_object('entries', c.entries, 'last', c.last,
  'hash', (SELECT encode(l.hash, 'hex') FROM links l WHERE l.id = c.last),
  'through', (SELECT jsonb_build_object('id', l.id, 'at', l.at) FROM links l
               WHERE c.broken IS NULL OR l.id < c.broken ORDER BY l.id DESC LIMIT 1),
  'broken', (SELECT jsonb_build_object('id', l.id, 'at', l.at) FROM links l WHERE l.id = c.broken)
)::text FROM counted c
""")
"""Check a batch of entries: the last one up to which the chain holds, and the first broken one."""
