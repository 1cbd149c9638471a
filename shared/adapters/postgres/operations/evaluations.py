"""Store for the conversations of `eval`: state, costs, and detaching them at the end."""

from __future__ import annotations

from dataclasses import dataclass

from shared.adapters.postgres.db.pool import Named, PoolStore, store_method
from shared.adapters.postgres.people.api_sessions import EXTERNAL
from shared.core.ops.evaluation import EvalFigures
from shared.core.values.messages import blocks_from_json, text_of


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnState:
    """State of the turn that a message began.

    `answer` is the text of its last answer, "" without one. `error_code` is None unless the turn failed.
    """

    state: str
    error_code: str | None
    answer: str
    used_recall: bool
    """Whether the model called the tool `recall` in this turn."""


class PostgresEvaluations(PoolStore):
    """Store for evaluations; each method is one transaction and raises StorageUnavailable."""

    @store_method
    async def load_turn(self, session_id: int, dedupe_key: str) -> TurnState | None:
        """Return the state of the turn to which the message with this key belongs; changes nothing.

        Returns None if no such message is stored.
        """
        row = await self._pool.fetchrow(*_TURN(session_id=session_id, dedupe_key=dedupe_key))
        if row is None:
            return None
        said = text_of(blocks_from_json(row["blocks"] or ()))
        return TurnState(
            state=row["state"], error_code=row["error_code"], answer=said, used_recall=row["used_recall"]
        )

    @store_method
    async def has_waiting_jobs(self, session_id: int) -> bool:
        """Return whether the session has a job that runs or is due now; jobs due later do not count."""
        return bool(await self._pool.fetchval(*_WAITING(session_id=session_id)))

    @store_method
    async def load_figures(self, session_id: int) -> EvalFigures:
        """Return number of compactions, tokens, micro-dollars and seconds of answering of a session."""
        row = await self._pool.fetchrow(*_FIGURES(session_id=session_id))
        assert row is not None
        return EvalFigures(**dict(row))

    @store_method
    async def is_erased(self, session_id: int) -> bool:
        """Return whether turns of the session were erased; False for an unknown session."""
        return bool(await self._pool.fetchval(*_IS_ERASED(session_id=session_id)))

    @store_method
    async def list_places(self, prefix: str) -> list[tuple[int, str]]:
        """Return (session id, agent name) of web conversations whose chat id begins with `prefix`.

        They are sorted by session id.
        """
        return [(row["id"], row["name"]) for row in await self._pool.fetch(*_PLACES(prefix=prefix))]

    @store_method
    async def leave_place(self, session_id: int, *, agent: str) -> None:
        """Detach an erased conversation from its agent and address, so that the next run starts a new one.

        All sessions of its person get the agent named `agent`, so that the former agent can be deleted. The
        address gets another chat id. No effect on the agent if there is none with that name.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(*_LEAVE_AGENT(session_id=session_id, agent=agent))
            await connection.execute(*_LEAVE_ADDRESS(session_id=session_id))


_TURN = Named("""
SELECT t.state, t.error_code,
       (SELECT e.blocks FROM turn_entries a JOIN entries e USING (session_id, seq)
         WHERE a.session_id = t.session_id AND a.turn_no = t.turn_no AND e.author = 'assistant'
         ORDER BY a.step DESC LIMIT 1) AS blocks,
       EXISTS (SELECT FROM turn_entries a JOIN entries e USING (session_id, seq)
                WHERE a.session_id = t.session_id AND a.turn_no = t.turn_no AND e.author = 'assistant'
                  AND e.blocks @> '[{"type": "tool_use", "name": "recall"}]') AS used_recall
  FROM entry_rows m JOIN turn_entries te USING (session_id, seq)
  JOIN turns t ON t.session_id = te.session_id AND t.turn_no = te.turn_no
 WHERE m.session_id = :session_id AND m.dedupe_key = :dedupe_key
""")
"""Select state, answer and use of `recall` of the turn to which an evaluation's question belongs."""
_WAITING = Named("""
SELECT EXISTS (SELECT FROM jobs WHERE session_id = :session_id
                  AND (state = 'running' OR state = 'due' AND due_at <= now()))
""")
_FIGURES = Named("""
SELECT t.compaction_count AS compactions, s.context_tokens, u.*,
       (SELECT coalesce(sum(extract(epoch FROM ended_at - claimed_at)), 0)::float8 FROM turns
         WHERE session_id = s.id) AS seconds
  FROM sessions s JOIN session_totals t ON t.session_id = s.id, LATERAL (
       SELECT coalesce(sum(input_tokens), 0)::bigint AS fresh,
              coalesce(sum(cache_read_tokens), 0)::bigint AS cached,
              coalesce(sum(cache_write_tokens), 0)::bigint AS written,
              coalesce(sum(output_tokens), 0)::bigint AS out,
              coalesce(sum(cost_micro), 0)::bigint AS micro,
              count(*) FILTER (WHERE cost_micro IS NULL) AS unpriced_calls
         FROM usage WHERE session_id = s.id) u
 WHERE s.id = :session_id
""")
"""Summaries, tokens, cost and seconds of an evaluated session."""
_PLACES = Named("""
SELECT s.id, g.name FROM addresses a JOIN sessions s ON s.id = a.session_id JOIN agents g ON g.id = s.agent_id
 WHERE a.channel = 'web' AND starts_with(a.chat, :prefix) ORDER BY s.id
""")
_LEAVE_AGENT = Named("""
UPDATE sessions SET agent_id = a.id, view_epoch = sessions.view_epoch + 1
  FROM agents a, sessions s
 WHERE s.id = :session_id AND sessions.contact_id = s.contact_id AND a.name = :agent
""")
"""Move all sessions of the person, including imports, to another agent."""
_LEAVE_ADDRESS = Named(
    """
UPDATE addresses SET chat = :external || 'evaluated-' || session_id WHERE session_id = :session_id
""",
    external=EXTERNAL,
)
_IS_ERASED = Named("SELECT erased_turn > 0 FROM sessions WHERE id = :session_id")
