"""The texts of messages that became one entry, so that an edit of one of them changes its part alone."""

from __future__ import annotations

from alembic import op

revision = "0075"
down_revision = "0074"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # The text of this message, where its entry holds more than that; null where the entry is this text.
    op.execute(
        """ALTER TABLE telegram_messages ADD COLUMN own_text TEXT,
           ADD CONSTRAINT telegram_message_text_is_short CHECK (char_length(own_text) <= 40000)"""
    )


def downgrade() -> None:
    op.execute("ALTER TABLE telegram_messages DROP COLUMN own_text")
