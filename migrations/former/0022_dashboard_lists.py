"""Lists of a million conversations: where each was spoken last, an index per order, words of names."""

from __future__ import annotations

from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

NAME_PIECES = r"""
CREATE FUNCTION name_pieces(text) RETURNS text[]
       LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
         SELECT coalesce(array_agg(DISTINCT substr(lower($1), n, 3)), '{}')
           FROM generate_series(1, length($1) - 2) n $$
"""
INDEXES = {
    "sessions_by_channel": "sessions (last_channel, id)",
    "sessions_by_turns": "sessions (next_turn, id)",
    "sessions_by_agent": "sessions (agent_id, id)",
    "sessions_by_context": """sessions (coalesce((CASE WHEN context_limit > 0
        THEN context_tokens * 100.0 / context_limit END)::float8, -1), id)""",
    "totals_by_input": """session_totals
        ((input_tokens + cache_read_tokens + cache_write_tokens), session_id)""",
    "totals_by_output": "session_totals (output_tokens, session_id)",
    "totals_by_cost": """session_totals (coalesce(CASE WHEN cost_unknown_calls > 0 AND cost_micro = 0
        THEN NULL ELSE cost_micro END, -1), session_id)""",
    "totals_by_cache": """session_totals (coalesce((CASE
        WHEN input_tokens + cache_read_tokens + cache_write_tokens > 0
        THEN cache_read_tokens * 100.0 / (input_tokens + cache_read_tokens + cache_write_tokens)
        END)::float8, -1), session_id)""",
    "totals_by_compactions": "session_totals (compaction_count, session_id)",
    "parties_by_name": 'parties (lower(display_name) COLLATE "C", id)',
    "parties_by_pieces": "parties USING gin (name_pieces(display_name))",
    "turns_failed": "turns (session_id, turn_no) WHERE state = 'failed'",
    "turns_by_time": "turns USING brin (opened_at)",
    "jobs_dead_by_session": "jobs (session_id, id) WHERE state = 'dead'",
    "usage_by_time": "usage USING brin (at)",
}


def upgrade() -> None:
    op.execute(NAME_PIECES)
    op.execute("ALTER TABLE sessions ADD COLUMN last_channel TEXT DEFAULT '' NOT NULL")
    op.execute(
        """UPDATE sessions s SET last_channel = n.channel
             FROM turns n WHERE n.session_id = s.id AND n.turn_no = s.next_turn - 1"""
    )
    op.execute("ALTER TABLE turn_context_audit ADD COLUMN model_ms BIGINT")
    for name, on in INDEXES.items():
        op.execute(f"CREATE INDEX {name} ON {on}")


def downgrade() -> None:
    for name in INDEXES:
        op.execute(f"DROP INDEX {name}")
    op.execute("ALTER TABLE turn_context_audit DROP COLUMN model_ms")
    op.execute("ALTER TABLE sessions DROP COLUMN last_channel")
    op.execute("DROP FUNCTION name_pieces(text)")
