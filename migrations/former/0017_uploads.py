"""Files that visitors send: what was read from them, each of a conversation once."""

from __future__ import annotations

from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """ALTER TABLE attachments
             ADD COLUMN arrived_sha256 BYTEA,
             ADD COLUMN width INTEGER,
             ADD COLUMN height INTEGER,
             ADD COLUMN words TEXT,
             ADD CONSTRAINT attachment_arrives_once UNIQUE (session_id, arrived_sha256),
             ADD CONSTRAINT attachment_is_seen_or_read
               CHECK (arrived_sha256 IS NULL OR (words IS NULL) = (width IS NOT NULL))"""
    )


def downgrade() -> None:
    op.execute(
        """ALTER TABLE attachments
             DROP CONSTRAINT attachment_arrives_once, DROP CONSTRAINT attachment_is_seen_or_read,
             DROP COLUMN arrived_sha256, DROP COLUMN width, DROP COLUMN height, DROP COLUMN words"""
    )
