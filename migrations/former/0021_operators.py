"""Operators of an identity provider, logins told apart, and failed tries that outlive a process."""

from __future__ import annotations

from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """
        ALTER TABLE operators
            ADD COLUMN public_id UUID DEFAULT gen_random_uuid() NOT NULL UNIQUE,
            ADD COLUMN version INTEGER DEFAULT 1 NOT NULL,
            ADD COLUMN issuer TEXT,
            ADD COLUMN subject TEXT,
            ADD COLUMN last_login_at TIMESTAMP WITH TIME ZONE,
            ADD CONSTRAINT operator_of_a_provider CHECK ((issuer IS NULL) = (subject IS NULL)),
            ADD CONSTRAINT operator_has_one_way_in CHECK (issuer IS NULL OR password_hash IS NULL),
            ADD CONSTRAINT operator_identity UNIQUE (issuer, subject)
        """
    )
    op.execute(
        """
        ALTER TABLE operator_sessions
            ADD COLUMN public_id UUID DEFAULT gen_random_uuid() NOT NULL UNIQUE,
            ADD COLUMN how TEXT DEFAULT 'link' NOT NULL,
            ADD COLUMN source TEXT DEFAULT '' NOT NULL,
            ADD COLUMN browser TEXT DEFAULT '' NOT NULL,
            ADD CONSTRAINT operator_session_how CHECK (how IN ('link', 'password', 'provider'))
        """
    )
    op.execute(
        """
        CREATE TABLE login_tries (
            key BYTEA NOT NULL,
            operator_id BIGINT,
            failures INTEGER DEFAULT 0 NOT NULL,
            last_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
            refused_until TIMESTAMP WITH TIME ZONE,
            PRIMARY KEY (key),
            CONSTRAINT login_tries_count CHECK (failures >= 0),
            CONSTRAINT login_tries_are_of_hashes CHECK (octet_length(key) = 32),
            FOREIGN KEY(operator_id) REFERENCES operators (id)
        )
        """
    )
    op.execute("CREATE INDEX audit_by_actor ON audit (actor, id)")
    op.execute("CREATE INDEX audit_by_action ON audit (action, id)")
    op.execute("CREATE INDEX audit_by_time ON audit (at)")


def downgrade() -> None:
    for name in ("audit_by_time", "audit_by_action", "audit_by_actor"):
        op.execute(f"DROP INDEX {name}")
    op.execute("DROP TABLE login_tries")
    op.execute(
        """ALTER TABLE operator_sessions DROP COLUMN public_id, DROP COLUMN how, DROP COLUMN source,
           DROP COLUMN browser"""
    )
    op.execute(
        """ALTER TABLE operators DROP COLUMN public_id, DROP COLUMN version, DROP COLUMN last_login_at,
           DROP COLUMN issuer, DROP COLUMN subject"""
    )
