"""Artifacts belong to a message of the log, and a prune decision may carry its own texts."""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"
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
    op.execute(
        """
        ALTER TABLE prune_decisions ADD COLUMN shown JSONB, DROP CONSTRAINT prune_decisions_pkey,
            ADD PRIMARY KEY (session_id, seq, turn_no)
        """
    )


def downgrade() -> None:
    op.execute(
        """
        DELETE FROM prune_decisions d USING prune_decisions n
         WHERE n.session_id = d.session_id AND n.seq = d.seq AND n.turn_no > d.turn_no
        """
    )
    op.execute(
        """
        ALTER TABLE prune_decisions DROP COLUMN shown, DROP CONSTRAINT prune_decisions_pkey,
            ADD PRIMARY KEY (session_id, seq)
        """
    )
    op.execute(
        """
        ALTER TABLE artifacts DROP CONSTRAINT artifact_is_stored_once, DROP CONSTRAINT artifact_entry,
            ALTER COLUMN seq DROP NOT NULL
        """
    )
