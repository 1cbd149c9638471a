"""Operators change settings while Evertalk runs: each has a row, with its secret sealed."""

from __future__ import annotations

from alembic import op

revision = "0051"
down_revision = "0050"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """CREATE TABLE stored_settings (
             -- What an operator has set while Evertalk runs; one that was taken away keeps its row and
             -- version.
             name TEXT NOT NULL PRIMARY KEY,
             value TEXT,
             key_id TEXT,
             sealed BYTEA,
             version BIGINT NOT NULL,
             changed_by TEXT NOT NULL,
             changed_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
             CONSTRAINT stored_setting_is_plain_or_sealed
               CHECK (num_nonnulls(value, sealed) <= 1 AND (key_id IS NULL) = (sealed IS NULL)),
             CONSTRAINT stored_setting_counts CHECK (version > 0))"""
    )


def downgrade() -> None:
    op.execute("DROP TABLE stored_settings")
