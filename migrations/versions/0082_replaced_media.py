"""The file of each Telegram message, so that an edit that replaces it is told from an edit of its caption."""

from __future__ import annotations

from alembic import op

revision = "0082"
down_revision = "0081"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """ALTER TABLE telegram_messages ADD COLUMN file_unique_id TEXT,
             ADD CONSTRAINT telegram_message_file_is_short
               CHECK (char_length(file_unique_id) <= 200) NOT VALID"""
    )
    op.execute(
        """COMMENT ON COLUMN telegram_messages.file_unique_id IS
             'Telegram''s id of the file; NULL without one, and before this column was there'"""
    )


def downgrade() -> None:
    op.execute("ALTER TABLE telegram_messages DROP COLUMN file_unique_id")
