"""Since when a turn waits for a provider that cannot answer: after ten minutes it ends."""

from __future__ import annotations

from alembic import op

revision = "0068"
down_revision = "0067"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """ALTER TABLE turns ADD COLUMN waits_since TIMESTAMP WITH TIME ZONE,
             ADD CONSTRAINT turn_waits_since_asking CHECK (waits_since IS NULL OR attempt > 0) NOT VALID"""
    )
    op.execute(
        """COMMENT ON COLUMN turns.waits_since IS
             'When the turn was first put back because its provider could not answer'"""
    )


def downgrade() -> None:
    op.execute("ALTER TABLE turns DROP COLUMN waits_since")
