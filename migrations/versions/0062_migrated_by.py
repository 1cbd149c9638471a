"""The database stores which version of Evertalk migrated it last, so that a former version can name it."""

from __future__ import annotations

from alembic import op

revision = "0062"
down_revision = "0061"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """ALTER TABLE deployment
             -- Empty for data that no version since 0.2.0 has migrated.
             ADD COLUMN migrated_by TEXT DEFAULT '' NOT NULL,
             ADD COLUMN migrated_at TIMESTAMP WITH TIME ZONE"""
    )


def downgrade() -> None:
    op.execute("ALTER TABLE deployment DROP COLUMN migrated_by, DROP COLUMN migrated_at")
