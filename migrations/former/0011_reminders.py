"""Reminders, and messages of the program itself, which begin their turns."""

from __future__ import annotations

from alembic import op

revision = "0011"
down_revision = "0009"
branch_labels = None
depends_on = None

_AUTHORS = "'person', 'assistant', 'tool', 'operator'"


def upgrade() -> None:
    _authors(f"{_AUTHORS}, 'program'")
    op.execute(
        """
        CREATE TABLE reminders (
            id BIGSERIAL NOT NULL,
            public_id UUID DEFAULT gen_random_uuid() NOT NULL,
            key TEXT NOT NULL,
            party_id BIGINT NOT NULL,
            session_id BIGINT NOT NULL,
            address_id BIGINT NOT NULL,
            text TEXT NOT NULL,
            due_at TIMESTAMP WITH TIME ZONE NOT NULL,
            tell_at TIMESTAMP WITH TIME ZONE NOT NULL,
            state TEXT DEFAULT 'pending' NOT NULL,
            turn_no BIGINT,
            reason TEXT DEFAULT '' NOT NULL,
            created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
            claimed_at TIMESTAMP WITH TIME ZONE,
            ended_at TIMESTAMP WITH TIME ZONE,
            PRIMARY KEY (id),
            CONSTRAINT reminder_state CHECK (state IN ('pending', 'claimed', 'done', 'cancelled', 'failed')),
            CONSTRAINT reminder_text_is_short CHECK (char_length(text) BETWEEN 1 AND 500),
            CONSTRAINT reminder_has_its_turn CHECK (state NOT IN ('claimed', 'done') OR turn_no IS NOT NULL),
            CONSTRAINT reminder_end_has_a_time
                CHECK ((ended_at IS NULL) = (state IN ('pending', 'claimed'))),
            UNIQUE (public_id),
            UNIQUE (key),
            FOREIGN KEY (party_id) REFERENCES parties (id),
            FOREIGN KEY (session_id) REFERENCES sessions (id),
            FOREIGN KEY (address_id) REFERENCES addresses (id)
        )
        """
    )
    op.execute("CREATE INDEX reminders_due ON reminders (tell_at) WHERE state = 'pending'")
    op.execute("CREATE INDEX reminders_claimed ON reminders (id) WHERE state = 'claimed'")
    op.execute("CREATE INDEX reminders_of_party ON reminders (party_id, due_at)")
    op.execute(
        "CREATE UNIQUE INDEX reminders_by_turn ON reminders (session_id, turn_no) WHERE turn_no IS NOT NULL"
    )


def downgrade() -> None:
    op.execute("DROP TABLE reminders")
    op.execute("UPDATE entries SET author = 'operator' WHERE author = 'program'")
    _authors(_AUTHORS)


def _authors(names: str) -> None:
    op.execute("ALTER TABLE entries DROP CONSTRAINT entry_author")
    op.execute(f"ALTER TABLE entries ADD CONSTRAINT entry_author CHECK (author IN ({names}))")
