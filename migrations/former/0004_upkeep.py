"""Upkeep: why automatic compaction rests, checkpoints, failed attempts, whose turns nobody has read."""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

STATEMENTS = (
    """
    ALTER TABLE sessions ADD COLUMN compaction_rest JSONB
    """,
    """
    CREATE INDEX sessions_unflushed ON sessions (id) WHERE flushed_turn < base_turn
    """,
    """
    ALTER TABLE jobs ADD COLUMN failures JSONB DEFAULT '[]'::jsonb NOT NULL
    """,
    """
    CREATE TABLE checkpoints (
        id BIGSERIAL NOT NULL,
        session_id BIGINT NOT NULL,
        parent BIGINT,
        from_turn BIGINT NOT NULL,
        through_turn BIGINT NOT NULL,
        ledger JSONB DEFAULT '{}'::jsonb NOT NULL,
        audit JSONB DEFAULT '{}'::jsonb NOT NULL,
        tokens INTEGER DEFAULT 0 NOT NULL,
        model TEXT DEFAULT '' NOT NULL,
        cost_micro BIGINT,
        job_id BIGINT,
        created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
        PRIMARY KEY (id),
        CONSTRAINT checkpoint_session FOREIGN KEY(session_id) REFERENCES sessions (id),
        CONSTRAINT checkpoint_range CHECK (from_turn <= through_turn)
    )
    """,
    """
    CREATE INDEX checkpoints_of_session ON checkpoints (session_id, id)
    """,
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    op.execute("DROP TABLE checkpoints")
    op.execute("ALTER TABLE jobs DROP COLUMN failures")
    op.execute("DROP INDEX sessions_unflushed")
    op.execute("ALTER TABLE sessions DROP COLUMN compaction_rest")
