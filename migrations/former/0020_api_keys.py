"""Keys for programs that talk over REST: only their hashes are stored."""

from __future__ import annotations

from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """
        CREATE TABLE api_keys (
            id BIGSERIAL NOT NULL,
            name TEXT NOT NULL,
            prefix TEXT NOT NULL,
            token_hash BYTEA NOT NULL,
            scopes TEXT[] NOT NULL,
            site TEXT,
            agent_id BIGINT,
            created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
            expires_at TIMESTAMP WITH TIME ZONE,
            last_used_at TIMESTAMP WITH TIME ZONE,
            revoked_at TIMESTAMP WITH TIME ZONE,
            PRIMARY KEY (id),
            CONSTRAINT api_key_may_something CHECK (cardinality(scopes) > 0),
            CONSTRAINT api_key_is_kept_as_a_hash CHECK (octet_length(token_hash) = 32),
            UNIQUE (token_hash),
            CONSTRAINT api_key_site FOREIGN KEY(site) REFERENCES sites (name) ON DELETE CASCADE,
            CONSTRAINT api_key_agent FOREIGN KEY(agent_id) REFERENCES agents (id) ON DELETE CASCADE
        )
        """
    )
    op.execute("CREATE UNIQUE INDEX api_key_of_a_name ON api_keys (name) WHERE revoked_at IS NULL")


def downgrade() -> None:
    op.execute("DROP TABLE api_keys")
