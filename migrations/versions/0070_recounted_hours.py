"""An index of the hours that a former version has counted, of which there are none at rest."""

from __future__ import annotations

from alembic import op

revision = "0070"
down_revision = "0069"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """CREATE INDEX hours_counted_otherwise ON hourly_stats (hour)
            WHERE added_at IS DISTINCT FROM counted_at"""
    )


def downgrade() -> None:
    op.execute("DROP INDEX hours_counted_otherwise")
