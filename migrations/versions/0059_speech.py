"""Answers are spoken: who wants that, and what was made, for a day."""

from __future__ import annotations

from alembic import op

revision = "0059"
down_revision = "0058"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Whether its answers are spoken; `auto` where a voice message is answered.
    op.execute(
        """ALTER TABLE sessions ADD COLUMN voice TEXT DEFAULT 'off' NOT NULL,
             ADD CONSTRAINT session_voice CHECK (voice IN ('off', 'on', 'auto'))"""
    )
    op.execute(
        """CREATE TABLE spoken_answers (
             -- An answer as it is read aloud, for a day.
             session_id BIGINT NOT NULL,
             turn_no BIGINT NOT NULL,
             form TEXT NOT NULL,
             state TEXT DEFAULT 'due' NOT NULL,
             body BYTEA,
             created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
             PRIMARY KEY (session_id, turn_no, form),
             CONSTRAINT spoken_turn FOREIGN KEY (session_id, turn_no) REFERENCES turns (session_id, turn_no),
             CONSTRAINT spoken_form CHECK (form IN ('opus', 'mp3')),
             CONSTRAINT spoken_state CHECK (state IN ('due', 'sending', 'over')))"""
    )
    op.execute("CREATE INDEX spoken_answers_made ON spoken_answers (created_at)")


def downgrade() -> None:
    op.execute("DROP TABLE spoken_answers")
    op.execute("ALTER TABLE sessions DROP CONSTRAINT session_voice, DROP COLUMN voice")
