"""Chats that take no messages at the moment: their answers wait, and are tried again."""

from __future__ import annotations

from alembic import op

revision = "0077"
down_revision = "0076"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """ALTER TABLE addresses ADD COLUMN next_try_at TIMESTAMP WITH TIME ZONE,
             ADD COLUMN refusal TEXT DEFAULT '' NOT NULL,
             ADD CONSTRAINT address_next_try
               CHECK (next_try_at IS NULL OR unreachable_since IS NOT NULL) NOT VALID"""
    )
    op.execute(
        """COMMENT ON COLUMN addresses.next_try_at IS
             'Next try to write to a chat that took no messages, such as a closed topic; NULL: none until a
              person writes'"""
    )
    op.execute(
        "COMMENT ON COLUMN addresses.refusal IS 'The channel''s reason while the chat takes no messages'"
    )


def downgrade() -> None:
    op.execute("ALTER TABLE addresses DROP COLUMN refusal, DROP COLUMN next_try_at")
