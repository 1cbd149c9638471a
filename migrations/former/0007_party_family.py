"""Which parties are one person now, and the purposes of further model calls."""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_PURPOSES = "'chat', 'flush', 'compact', 'repair'"


def upgrade() -> None:
    op.execute("CREATE INDEX parties_merged ON parties (merged_into) WHERE merged_into IS NOT NULL")
    op.execute(
        """CREATE FUNCTION party_family(bigint) RETURNS SETOF bigint LANGUAGE sql STABLE ROWS 1 AS $$
         SELECT $1 UNION ALL SELECT id FROM parties WHERE merged_into = $1 $$"""
    )
    _purposes(f"{_PURPOSES}, 'delegate', 'tidy'")


def downgrade() -> None:
    _purposes(_PURPOSES)
    op.execute("DROP FUNCTION party_family(bigint)")
    op.execute("DROP INDEX parties_merged")


def _purposes(names: str) -> None:
    op.execute("ALTER TABLE usage DROP CONSTRAINT usage_purpose")
    op.execute(f"ALTER TABLE usage ADD CONSTRAINT usage_purpose CHECK (purpose IN ({names}))")
