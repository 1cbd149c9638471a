"""Store that reads a turn's last model call as the model received it, for operators."""

from __future__ import annotations

from dataclasses import fields

from shared.adapters.postgres.db.pool import Named, PoolStore, store_method
from shared.adapters.postgres.turns.turns import add_descriptions, build_entry
from shared.core.session.session import drop_former
from shared.core.session.turns import ContextAudit, StoredTurn, compaction_from_json

_FIELDS = tuple(one.name for one in fields(ContextAudit))
_NAMED_OTHERWISE = {
    "estimated_before": "estimated_input_tokens_before",
    "estimated_after_summary": "estimated_input_tokens_after_summary",
    "estimated_after_prune": "estimated_input_tokens_after_prune",
    "reported": "reported_input_tokens",
}

_CALL = Named("""
SELECT c.*, (SELECT to_jsonb(l) FROM compactions l WHERE l.id = c.head) AS head_compaction
  FROM turn_context_audit c WHERE c.session_id = :session_id AND c.turn_id = :turn ORDER BY c.id DESC LIMIT 1
""")
_ENTRIES = Named("""
SELECT e.seq, te.turn_no, te.step, e.role, e.author, e.blocks, e.tokens, e.at, e.replaces_seq,
       te.seq = ANY (:pins::bigint[]) AS pinned, NULL AS form, NULL AS shown
  FROM turn_entries te JOIN entries e USING (session_id, seq)
 WHERE te.session_id = :session_id AND te.turn_no <= :turn
   AND (te.seq <= :entry_through OR te.seq = ANY (:pins::bigint[]))
   AND (te.turn_no > :base_turn AND (te.replaced_by IS NULL OR te.replaced_by > :entry_through)
        OR te.seq = ANY (:pins::bigint[]))
 ORDER BY te.turn_no, coalesce((
         SELECT min(x.step) FROM turn_entries x JOIN entry_rows w USING (session_id, seq)
          WHERE x.session_id = :session_id AND x.turn_no = te.turn_no AND te.replaced_by IS NOT NULL
            AND coalesce(e.replaces_seq, e.seq) IN (w.seq, w.replaces_seq)), te.step)
""")
"""Select the entries of the call; a former wording of a message has the position of the newest one."""
_PARTS = Named("SELECT sha256, body FROM prompt_parts WHERE sha256 = ANY (:hashes)")


class PostgresReplays(PoolStore):
    """Reader of the requests that turns sent to models; it raises StorageUnavailable."""

    @store_method
    async def load_turn(self, session_id: int, turn: int) -> StoredTurn | None:
        """Return everything that is stored of the last model call of a turn; changes nothing.

        Returns None if the turn called no model, or if retention has deleted the record of the call.
        """
        row = await self._pool.fetchrow(*_CALL(session_id=session_id, turn=turn))
        if row is None:
            return None
        values = {name: row[_NAMED_OTHERWISE.get(name, name)] for name in _FIELDS}
        audit = ContextAudit(
            **{**values, "part_hashes": tuple(row["part_hashes"]), "prune_seqs": tuple(row["prune_seqs"])}
        )
        pins = [*audit.recipe.get("pins", ()), *audit.recipe.get("late_pins", ())]
        rows = await self._pool.fetch(
            *_ENTRIES(
                session_id=session_id,
                turn=turn,
                entry_through=audit.entry_through,
                base_turn=audit.base_turn,
                pins=pins,
            )
        )
        hashes = [bytes.fromhex(key) for key in audit.part_hashes]
        parts = await self._pool.fetch(*_PARTS(hashes=hashes))
        return StoredTurn(
            audit=audit,
            head=compaction_from_json(row["head_compaction"]),
            entries=await add_descriptions(
                self._pool, drop_former([build_entry(found) for found in rows], open_turn=turn)
            ),
            parts={part["sha256"].hex(): part["body"] for part in parts},
        )
