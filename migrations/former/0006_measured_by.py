"""Which model measured a session, what was learned of the others, and how a request is made again."""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE sessions ADD COLUMN measured_by TEXT NOT NULL DEFAULT ''")
    op.execute("ALTER TABLE sessions ADD COLUMN token_ratios JSONB NOT NULL DEFAULT '{}'::jsonb")
    op.execute(
        "ALTER TABLE sessions ADD CONSTRAINT session_ratios_by_model "
        "CHECK (jsonb_typeof(token_ratios) = 'object')"
    )
    op.execute("ALTER TABLE turn_context_audit ADD COLUMN recipe JSONB NOT NULL DEFAULT '{}'::jsonb")


def downgrade() -> None:
    op.execute("ALTER TABLE turn_context_audit DROP COLUMN recipe")
    op.execute("ALTER TABLE sessions DROP COLUMN token_ratios")
    op.execute("ALTER TABLE sessions DROP COLUMN measured_by")
