"""The limit of one conversation, above which a summary is due."""

from __future__ import annotations

from alembic import op

revision = "0085"
down_revision = "0084"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """ALTER TABLE sessions ADD COLUMN compact_at INTEGER,
             ADD CONSTRAINT session_compact_at CHECK (compact_at BETWEEN 1 AND 10000000) NOT VALID"""
    )
    op.execute(
        """COMMENT ON COLUMN sessions.compact_at IS
             'tokens of a request above which a summary is due; NULL: as the agent is configured'"""
    )


def downgrade() -> None:
    op.execute("ALTER TABLE sessions DROP COLUMN compact_at")
