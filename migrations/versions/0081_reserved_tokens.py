"""Tokens of calls without a price are reserved as money is, apart from it."""

from __future__ import annotations

from alembic import op

revision = "0081"
down_revision = "0080"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Amounts of the scope `tokens` are tokens: no sum of money may hold one, and no turn or job settles it.
    op.execute(
        """ALTER TABLE reservations ADD CONSTRAINT reserved_tokens_stand_alone
             CHECK (NOT ('tokens' = ANY (scopes))
                    OR (cardinality(scopes) = 1 AND party_id = 0 AND slice_id IS NULL
                        AND turn_no IS NULL AND job_id IS NULL))"""
    )
    op.execute(
        """COMMENT ON CONSTRAINT reserved_tokens_stand_alone ON reservations IS
             'The scope tokens counts input tokens of calls without a price, an output token several times'"""
    )


def downgrade() -> None:
    op.execute("""DELETE FROM reservations WHERE 'tokens' = ANY (scopes)""")
    op.execute("DELETE FROM spend_days WHERE scope = 'tokens'")
    op.execute("ALTER TABLE reservations DROP CONSTRAINT reserved_tokens_stand_alone")
