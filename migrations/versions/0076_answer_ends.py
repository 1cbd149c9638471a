"""Why each answer ended: by itself, at its model's longest output, by a filter, or by its person."""

from __future__ import annotations

from alembic import op

revision = "0076"
down_revision = "0075"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """ALTER TABLE turns ADD COLUMN stop_reason TEXT,
             ADD CONSTRAINT turn_stop_reason
               CHECK (stop_reason IN ('stop', 'length', 'filter', 'cancelled')) NOT VALID"""
    )
    op.execute(
        """COMMENT ON COLUMN turns.stop_reason IS
             'Why the answer ended; NULL without an answer of a model, and before this column was there'"""
    )


def downgrade() -> None:
    op.execute("ALTER TABLE turns DROP COLUMN stop_reason")
