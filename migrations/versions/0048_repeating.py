"""Reminders can repeat, and pause."""

from __future__ import annotations

from alembic import op

revision = "0048"
down_revision = "0047"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # When it comes again; each time is a row of its own, added when the one before begins its turn.
    op.execute(
        """ALTER TABLE reminders ADD COLUMN repeat TEXT DEFAULT '' NOT NULL, ADD COLUMN paused_at TIMESTAMPTZ,
           ADD CONSTRAINT reminder_repeat_is_a_rule CHECK (
             repeat ~ '^((day|week|month)/[0-9]{1,2}/[a-z0-9,]*/[0-2][0-9]:[0-5][0-9])?$'),
           ADD CONSTRAINT reminder_pauses_while_it_waits CHECK (
             paused_at IS NULL OR (state = 'pending' AND repeat <> ''))"""
    )


def downgrade() -> None:
    op.execute("ALTER TABLE reminders DROP COLUMN repeat, DROP COLUMN paused_at")
