"""Jobs that died lately are counted by an index, however many died on a bad day."""

from __future__ import annotations

from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """CREATE INDEX jobs_dead_by_time ON jobs (ended_at)
           WHERE state = 'dead' AND NOT outcome ? 'cancelled'"""
    )


def downgrade() -> None:
    op.execute("DROP INDEX jobs_dead_by_time")
