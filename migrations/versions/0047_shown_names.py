"""Operators have a name that people see, and pages that were refused are remembered for their sites."""

from __future__ import annotations

from alembic import op

revision = "0047"
down_revision = "0046"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # What people see; nobody but operators learns a login name.
    op.execute("ALTER TABLE operators ADD COLUMN display_name TEXT NOT NULL DEFAULT ''")
    op.execute(
        """ALTER TABLE operators ADD CONSTRAINT operator_display_name
               CHECK (char_length(display_name) <= 60)"""
    )

    op.execute(
        """CREATE TABLE refused_origins (
             -- A page that asked for a site's chat and may not have it; of each site the latest fifty.
             site TEXT NOT NULL, origin TEXT NOT NULL, refused BIGINT DEFAULT 1 NOT NULL,
             last_at TIMESTAMPTZ DEFAULT now() NOT NULL,
             PRIMARY KEY (site, origin),
             CONSTRAINT refused_origin_site FOREIGN KEY (site) REFERENCES sites (name))"""
    )


def downgrade() -> None:
    op.execute("DROP TABLE refused_origins")
    op.execute("ALTER TABLE operators DROP COLUMN display_name")
