"""Where operators have logged in before: a stranger's wrong passwords do not keep them out there."""

from __future__ import annotations

from alembic import op

revision = "0042"
down_revision = "0041"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """CREATE TABLE login_places (
             key BYTEA NOT NULL, operator_id BIGINT NOT NULL,
             at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
             PRIMARY KEY (key),
             CONSTRAINT login_places_are_hashes CHECK (octet_length(key) = 32),
             FOREIGN KEY(operator_id) REFERENCES operators (id)
           )"""
    )
    op.execute("CREATE INDEX login_places_of_operator ON login_places (operator_id, at)")


def downgrade() -> None:
    op.execute("DROP TABLE login_places")
