"""Conversations with a trouble in the order of their numbers, too: the list by state begins with them."""

from __future__ import annotations

from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("CREATE INDEX sessions_troubled_by_id ON sessions (id) WHERE troubled_at IS NOT NULL")


def downgrade() -> None:
    op.execute("DROP INDEX sessions_troubled_by_id")
