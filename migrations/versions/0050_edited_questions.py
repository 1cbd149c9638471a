"""A person can edit the last question: what it and its answers were stays in the log, marked as replaced."""

from __future__ import annotations

from alembic import op

revision = "0050"
down_revision = "0049"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # The entry with the newer words, where its person edited the question that this one is or answers.
    # Statements ask for `coalesce(replaced_by, 0) <= 0`: before there are statistics, a plan believes that
    # `IS NULL` is true of one row in two hundred, and joins in the square.
    op.execute(
        """ALTER TABLE turn_entries ADD COLUMN replaced_by BIGINT,
           ADD CONSTRAINT turn_entry_is_replaced_later CHECK (replaced_by > seq)"""
    )
    op.execute(
        """CREATE INDEX turn_entries_replaced ON turn_entries (session_id, replaced_by)
            WHERE replaced_by IS NOT NULL"""
    )


def downgrade() -> None:
    op.execute("ALTER TABLE turn_entries DROP COLUMN replaced_by")
