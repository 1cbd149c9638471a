"""Statements that bring the list of sessions up to date at once, for rows that were inserted in bulk."""

from __future__ import annotations

COLUMNS = """
contact_id, agent_id, next_turn, context_tokens, context_limit, last_active_at, troubled_at, last_channel,
input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost_micro, cost_unknown_calls
"""
"""Columns of `session_list` that a worker copies from the view `session_list_now`."""
LIST_ALL = f"""
INSERT INTO session_list (id, public_id, person, {COLUMNS})
SELECT id, s.public_id, s.person, {COLUMNS}
  FROM session_list_now JOIN (SELECT id, public_id, person FROM sessions) s USING (id)
 ORDER BY id
"""
"""Insert all sessions into the list, for bulk loads that fire no triggers."""
UPDATE_ALL = f"""
UPDATE session_list l SET ({COLUMNS}) = (SELECT {COLUMNS} FROM session_list_now x WHERE x.id = l.id)
"""
"""Update the rows of all sessions, as a worker does within seconds."""
