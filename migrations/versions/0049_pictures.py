"""Operators have a picture that the people see whom they answer."""

from __future__ import annotations

from alembic import op

revision = "0049"
down_revision = "0048"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """CREATE TABLE operator_pictures (
             -- What people see of an operator beside the name, found by a key that tells nothing but its
             -- content.
             operator_id BIGINT NOT NULL PRIMARY KEY REFERENCES operators (id),
             key TEXT NOT NULL,
             content BYTEA NOT NULL,
             CONSTRAINT operator_picture_key CHECK (key = left(encode(sha256(content), 'hex'), 32)),
             CONSTRAINT operator_picture_size CHECK (octet_length(content) BETWEEN 1 AND 40960))"""
    )


def downgrade() -> None:
    op.execute("DROP TABLE operator_pictures")
