"""The demo plays a conversation of ours into a person's own one: a row says how far it is."""

from __future__ import annotations

from alembic import op

revision = "0053"
down_revision = "0052"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """CREATE TABLE sample_plays (
             -- A conversation of ours that the demo plays into a person's own one, message by message.
             session_id BIGINT NOT NULL PRIMARY KEY REFERENCES sessions (id),
             address_id BIGINT NOT NULL REFERENCES addresses (id),
             begun_turn BIGINT NOT NULL,
             played INTEGER DEFAULT 0 NOT NULL,
             total INTEGER NOT NULL,
             started_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
             CONSTRAINT sample_is_played_to_its_end CHECK (played BETWEEN 0 AND total))"""
    )
    op.execute("CREATE INDEX sample_plays_due ON sample_plays (started_at) WHERE played < total")


def downgrade() -> None:
    op.execute("DROP TABLE sample_plays")
