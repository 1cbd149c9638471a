"""What a site looks like and whom it lets in, its secrets, and codes that bring a conversation back."""

from __future__ import annotations

from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

STATEMENTS = (
    """
    ALTER TABLE sites DROP COLUMN texts,
        ADD COLUMN config JSONB DEFAULT '{}'::jsonb NOT NULL,
        ADD COLUMN version BIGINT DEFAULT 1 NOT NULL
    """,
    "ALTER TABLE visitors ADD COLUMN identified BOOLEAN DEFAULT false NOT NULL",
    """
    CREATE TABLE site_secrets (
        site TEXT NOT NULL,
        slot INTEGER NOT NULL,
        secret_id TEXT NOT NULL,
        key_id TEXT NOT NULL,
        sealed BYTEA NOT NULL,
        created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
        PRIMARY KEY (site, slot),
        CONSTRAINT site_has_two_secrets CHECK (slot IN (1, 2)),
        CONSTRAINT site_secret_site FOREIGN KEY(site) REFERENCES sites (name)
    )
    """,
    """
    CREATE TABLE recovery_codes (
        address_id BIGINT NOT NULL,
        code_hash BYTEA NOT NULL,
        created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
        expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
        PRIMARY KEY (address_id),
        UNIQUE (code_hash),
        FOREIGN KEY(address_id) REFERENCES addresses (id)
    )
    """,
    "CREATE INDEX visitors_by_address ON visitors (address_id)",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    op.execute("DROP INDEX visitors_by_address")
    op.execute("DROP TABLE recovery_codes")
    op.execute("DROP TABLE site_secrets")
    op.execute("ALTER TABLE visitors DROP COLUMN identified")
    op.execute(
        """ALTER TABLE sites DROP COLUMN version, DROP COLUMN config,
               ADD COLUMN texts JSONB DEFAULT '{}'::jsonb NOT NULL"""
    )
