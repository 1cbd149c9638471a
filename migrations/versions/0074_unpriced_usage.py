"""Index of calls whose price is unknown, for the cap on their tokens."""

from __future__ import annotations

from alembic import op

revision = "0074"
down_revision = "0073"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Rows with a price are not in it: where all prices are known it stays empty.
    op.execute("CREATE INDEX usage_without_price ON usage (at) WHERE cost_micro IS NULL")


def downgrade() -> None:
    op.execute("DROP INDEX usage_without_price")
