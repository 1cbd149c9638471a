"""Artifacts belong to a message of the log, and a prune decision may carry its own texts."""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """
        ALTER TABLE artifacts ALTER COLUMN seq SET NOT NULL,
            ADD CONSTRAINT artifact_entry FOREIGN KEY (session_id, seq) REFERENCES entries (session_id, seq),
            ADD CONSTRAINT artifact_is_stored_once UNIQUE (session_id, seq, sha256)
        """
    )
    op.execute("ALTER TABLE prune_decisions ADD COLUMN shown JSONB")


def downgrade() -> None:
    op.execute("ALTER TABLE prune_decisions DROP COLUMN shown")
    op.execute(
        """
        ALTER TABLE artifacts DROP CONSTRAINT artifact_is_stored_once, DROP CONSTRAINT artifact_entry,
            ALTER COLUMN seq DROP NOT NULL
        """
    )
