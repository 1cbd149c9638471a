"""What failed, and what may not have arrived, found without reading everything that went well."""

from __future__ import annotations

from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("CREATE INDEX jobs_dead ON jobs (id) WHERE state = 'dead'")
    op.execute(
        "CREATE INDEX deliveries_in_doubt ON deliveries (created_at, session_id, turn_no, part) "
        "WHERE state IN ('uncertain', 'dead')"
    )


def downgrade() -> None:
    op.execute("DROP INDEX deliveries_in_doubt")
    op.execute("DROP INDEX jobs_dead")
