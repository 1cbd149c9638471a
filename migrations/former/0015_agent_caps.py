"""What an agent's row says about spending, as micro-dollars; nonsense is no limit."""

from __future__ import annotations

from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """CREATE FUNCTION agent_cap(config jsonb, name text) RETURNS bigint
           LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
         SELECT CASE WHEN jsonb_typeof(config #> ARRAY['caps', name]) = 'number'
                     THEN (least(greatest((config #>> ARRAY['caps', name])::numeric, 0), 1000000)
                           * 1000000)::bigint
                END $$"""
    )


def downgrade() -> None:
    op.execute("DROP FUNCTION agent_cap(jsonb, text)")
