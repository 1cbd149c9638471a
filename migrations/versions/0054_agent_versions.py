"""Former versions of an agent's config, files that an operator has uploaded, and calls of the playground."""

from __future__ import annotations

from alembic import op

revision = "0054"
down_revision = "0053"
branch_labels = None
depends_on = None

BEFORE = "'chat', 'flush', 'compact', 'repair', 'delegate', 'tidy'"


def upgrade() -> None:
    op.execute(
        """CREATE TABLE agent_versions (
             -- What an agent's config was, the newest hundred of each; the last one is what holds.
             agent_id BIGINT NOT NULL REFERENCES agents (id),
             version BIGINT NOT NULL,
             config JSONB DEFAULT '{}' NOT NULL,
             -- Null where it was before versions were kept.
             changed_by TEXT,
             changed_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
             PRIMARY KEY (agent_id, version))"""
    )
    # Null for a file of the agent's folder.
    op.execute("ALTER TABLE knowledge ADD COLUMN uploaded_by TEXT")
    _allow(f"{BEFORE}, 'playground'")


def downgrade() -> None:
    _allow(BEFORE)
    op.execute("ALTER TABLE knowledge DROP COLUMN uploaded_by")
    op.execute("DROP TABLE agent_versions")


def _allow(purposes: str) -> None:
    op.execute(
        f"""ALTER TABLE usage DROP CONSTRAINT usage_purpose,
              ADD CONSTRAINT usage_purpose CHECK (purpose IN ({purposes}))"""
    )
