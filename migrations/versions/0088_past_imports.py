"""Imports of one's past: which archived conversation came from which file."""

from __future__ import annotations

from alembic import op

revision = "0088"
down_revision = "0087"
branch_labels = None
depends_on = None

_SCOPES = "'everything', 'messages', 'retention', 'notes'"


def upgrade() -> None:
    op.execute(
        """CREATE TABLE past_imports (
             -- A conversation from a file of another program. Its turns have the channel `import`.
             session_id BIGINT NOT NULL,
             party_id BIGINT NOT NULL,
             source TEXT NOT NULL,
             -- Hash of the file, by which an import is resumed; NULL after it was undone or erased.
             digest BYTEA,
             -- Messages of the file that are stored, and the entries that they became.
             messages BIGINT DEFAULT 0 NOT NULL,
             entries BIGINT DEFAULT 0 NOT NULL,
             began_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
             -- When all of the file was stored.
             ended_at TIMESTAMP WITH TIME ZONE,
             PRIMARY KEY (session_id),
             CONSTRAINT import_session FOREIGN KEY (session_id) REFERENCES sessions (id),
             CONSTRAINT import_party FOREIGN KEY (party_id) REFERENCES parties (id),
             CONSTRAINT import_source CHECK (source IN ('telegram', 'chatgpt', 'claude', 'whatsapp')),
             CONSTRAINT import_counts CHECK (messages >= 0 AND entries >= 0))"""
    )
    op.execute("CREATE UNIQUE INDEX import_of_file ON past_imports (party_id, digest)")
    op.execute("ALTER TABLE erasures DROP CONSTRAINT erasure_scope")
    op.execute(
        f"ALTER TABLE erasures ADD CONSTRAINT erasure_scope CHECK (scope IN ({_SCOPES}, 'import')) NOT VALID"
    )


def downgrade() -> None:
    op.execute("ALTER TABLE erasures DROP CONSTRAINT erasure_scope")
    op.execute(f"ALTER TABLE erasures ADD CONSTRAINT erasure_scope CHECK (scope IN ({_SCOPES})) NOT VALID")
    op.execute("DROP TABLE past_imports")
