"""Chatter: a message of the assistant or a tool may be left out whole, as a decision that sticks."""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """ALTER TABLE prune_decisions DROP CONSTRAINT prune_form,
             ADD CONSTRAINT prune_form CHECK (form IN ('trim', 'clear', 'duplicate', 'hide'))"""
    )


def downgrade() -> None:
    op.execute("DELETE FROM prune_decisions WHERE form = 'hide'")
    op.execute(
        """ALTER TABLE prune_decisions DROP CONSTRAINT prune_form,
             ADD CONSTRAINT prune_form CHECK (form IN ('trim', 'clear', 'duplicate'))"""
    )
