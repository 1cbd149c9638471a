"""The switch of automatic summaries of one conversation."""

from __future__ import annotations

from alembic import op

revision = "0083"
down_revision = "0082"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """ALTER TABLE sessions ADD COLUMN compaction TEXT DEFAULT '' NOT NULL,
             ADD CONSTRAINT session_compaction CHECK (compaction IN ('', 'off')) NOT VALID"""
    )
    op.execute(
        """COMMENT ON COLUMN sessions.compaction IS
             '`off`: nothing is summarised unless a command asks; empty: as the agent is configured'"""
    )


def downgrade() -> None:
    op.execute("ALTER TABLE sessions DROP COLUMN compaction")
