"""A turn that a cap refused says whose. Jobs that are done lately, and those of a kind, have an index."""

from __future__ import annotations

from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE turns ADD COLUMN refused_scope TEXT")
    op.execute(
        """ALTER TABLE turns ADD CONSTRAINT turn_scope_refused CHECK (
             refused_scope IS NULL OR refused_scope IN ('party', 'session', 'total')
             AND state IN ('refused', 'answered')
             AND error_code IS NOT NULL AND error_code = 'cap_reached')"""
    )
    op.execute("CREATE INDEX jobs_done_by_time ON jobs (ended_at) WHERE state = 'done'")
    op.execute("CREATE INDEX jobs_of_kind ON jobs (kind, id)")


def downgrade() -> None:
    op.execute("DROP INDEX jobs_of_kind")
    op.execute("DROP INDEX jobs_done_by_time")
    op.execute("ALTER TABLE turns DROP COLUMN refused_scope")
