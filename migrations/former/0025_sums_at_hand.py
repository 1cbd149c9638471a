"""Sums and troubles of each conversation at hand, and words of notes and places by an index."""

from __future__ import annotations

from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

PCT = """coalesce((CASE WHEN context_limit > 0
        THEN context_tokens * 100.0 / context_limit END)::float8, -1)"""
SPEND = """
    CREATE TABLE session_spend (
        session_id BIGINT NOT NULL,
        purpose TEXT NOT NULL,
        model TEXT NOT NULL,
        calls BIGINT NOT NULL,
        aborted BIGINT NOT NULL,
        input_tokens BIGINT NOT NULL,
        output_tokens BIGINT NOT NULL,
        cache_read_tokens BIGINT NOT NULL,
        cache_write_tokens BIGINT NOT NULL,
        cost_micro BIGINT,
        unknown_cost BIGINT NOT NULL,
        unknown_tokens BIGINT NOT NULL,
        PRIMARY KEY (session_id, purpose, model),
        CONSTRAINT spend_session FOREIGN KEY(session_id) REFERENCES sessions (id),
        CONSTRAINT spend_purpose
            CHECK (purpose IN ('chat', 'flush', 'compact', 'repair', 'delegate', 'tidy')),
        CONSTRAINT spend_counts_calls
            CHECK (aborted BETWEEN 0 AND calls AND unknown_cost BETWEEN 0 AND calls
                   AND unknown_tokens BETWEEN 0 AND calls AND calls > 0),
        CONSTRAINT spend_is_null_when_unknown CHECK ((cost_micro IS NULL) = (unknown_cost = calls))
    ) WITH (fillfactor = 70)
"""
SO_FAR = """
    INSERT INTO session_spend
    SELECT session_id, purpose, model, count(*), count(*) FILTER (WHERE status = 'aborted'),
           sum(input_tokens), sum(output_tokens), sum(cache_read_tokens), sum(cache_write_tokens),
           sum(cost_micro), count(*) FILTER (WHERE cost_micro IS NULL), count(*) FILTER (WHERE NOT known)
      FROM usage WHERE session_id IN (SELECT id FROM sessions) GROUP BY session_id, purpose, model
"""
TROUBLED = """
    UPDATE sessions s SET troubled_at = now()
     WHERE EXISTS (SELECT FROM jobs j WHERE j.session_id = s.id AND j.state = 'dead')
        OR EXISTS (SELECT FROM turns n WHERE n.session_id = s.id AND n.turn_no = s.answered_turn
                      AND n.state = 'failed')
"""
INDEXES = {
    "sessions_troubled": "sessions (last_active_at, id) WHERE troubled_at IS NOT NULL",
    "sessions_filling": f"sessions (last_active_at, id) WHERE {PCT} >= 70",
    "sessions_nearly_full": f"sessions (last_active_at, id) WHERE {PCT} >= 90",
    "links_undone": "links (session_id) WHERE undone_at IS NOT NULL",
    "flushes_of_session": "flushes (session_id, id)",
    "notes_by_pieces": "notes USING gin (name_pieces(text || ' ' || subject))",
    "addresses_by_party": "addresses (party_id)",
    "addresses_by_pieces": "addresses USING gin (name_pieces(title || ' ' || chat)) WHERE channel <> 'web'",
}


def upgrade() -> None:
    op.execute(SPEND)
    op.execute(SO_FAR)
    op.execute("ALTER TABLE sessions ADD COLUMN troubled_at TIMESTAMP WITH TIME ZONE")
    op.execute(TROUBLED)
    for name, on in INDEXES.items():
        op.execute(f"CREATE INDEX {name} ON {on}")


def downgrade() -> None:
    for name in INDEXES:
        op.execute(f"DROP INDEX {name}")
    op.execute("ALTER TABLE sessions DROP COLUMN troubled_at")
    op.execute("DROP TABLE session_spend")
