"""A turn that was put back names its provider, whose next answer to anybody ends the wait."""

from __future__ import annotations

from alembic import op

revision = "0038"
down_revision = "0037"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """ALTER TABLE turns ADD COLUMN waits_for TEXT,
             ADD CONSTRAINT turn_waits_after_asking
               CHECK (waits_for IS NULL OR waits_for <> '' AND attempt > 0)"""
    )


def downgrade() -> None:
    op.execute("ALTER TABLE turns DROP CONSTRAINT turn_waits_after_asking, DROP COLUMN waits_for")
