"""A session's total counts all input, cached or not."""

from __future__ import annotations

from alembic import op

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None


STATEMENTS = (
    "ALTER TABLE session_totals DROP CONSTRAINT totals_add_up",
    """CREATE FUNCTION totals_add_up() RETURNS trigger LANGUAGE plpgsql AS $$
       BEGIN
         NEW.total_tokens := NEW.input_tokens + NEW.cache_read_tokens + NEW.cache_write_tokens
                             + NEW.output_tokens;
         RETURN NEW;
       END $$""",
    """CREATE TRIGGER totals_add_up BEFORE INSERT OR UPDATE ON session_totals
       FOR EACH ROW EXECUTE FUNCTION totals_add_up()""",
    "UPDATE session_totals SET total_tokens = 0",
    """ALTER TABLE session_totals ADD CONSTRAINT totals_add_up
       CHECK (total_tokens = input_tokens + cache_read_tokens + cache_write_tokens + output_tokens)""",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    op.execute("DROP TRIGGER totals_add_up ON session_totals")
    op.execute("DROP FUNCTION totals_add_up()")
    op.execute("ALTER TABLE session_totals DROP CONSTRAINT totals_add_up")
    op.execute("UPDATE session_totals SET total_tokens = input_tokens + output_tokens")
    op.execute(
        """ALTER TABLE session_totals ADD CONSTRAINT totals_add_up
             CHECK (total_tokens = input_tokens + output_tokens)"""
    )
