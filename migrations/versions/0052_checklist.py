"""An operator can put the checklist of the first days away."""

from __future__ import annotations

from alembic import op

revision = "0052"
down_revision = "0051"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE operators ADD COLUMN checklist_hidden_at TIMESTAMP WITH TIME ZONE")


def downgrade() -> None:
    op.execute("ALTER TABLE operators DROP COLUMN checklist_hidden_at")
