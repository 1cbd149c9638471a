"""Conversations that an operator holds for a while, and the turns that wait for them meanwhile."""

from __future__ import annotations

from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE sessions ADD COLUMN held_after BIGINT")
    op.execute(
        """ALTER TABLE sessions ADD CONSTRAINT session_holds_what_comes_next
           CHECK (held_after IS NULL OR held_after <= answered_turn + 1)"""
    )
    op.execute(
        """
        CREATE TABLE handovers (
            id BIGSERIAL NOT NULL,
            session_id BIGINT NOT NULL,
            address_id BIGINT NOT NULL,
            state TEXT DEFAULT 'waiting' NOT NULL,
            asked_by TEXT NOT NULL,
            reason TEXT DEFAULT '' NOT NULL,
            call_key TEXT,
            operator_id BIGINT,
            operator_name TEXT DEFAULT '' NOT NULL,
            asked_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
            taken_at TIMESTAMP WITH TIME ZONE,
            ended_at TIMESTAMP WITH TIME ZONE,
            ended_by TEXT DEFAULT '' NOT NULL,
            told TEXT DEFAULT 'nothing' NOT NULL,
            PRIMARY KEY (id),
            CONSTRAINT handover_state CHECK (state IN ('waiting', 'human', 'ended')),
            CONSTRAINT handover_asker CHECK (asked_by IN ('person', 'assistant', 'operator')),
            CONSTRAINT handover_reason_is_short CHECK (char_length(reason) <= 500),
            CONSTRAINT handover_has_its_operator
                CHECK (state <> 'human' OR operator_id IS NOT NULL AND taken_at IS NOT NULL),
            CONSTRAINT handover_end_has_a_time CHECK ((ended_at IS NULL) = (state <> 'ended')),
            CONSTRAINT handover_end_has_a_reason
                CHECK (ended_by IN ('', 'operator', 'person', 'unanswered', 'silent', 'off')
                       AND (ended_by = '') = (state <> 'ended')),
            CONSTRAINT handover_told
                CHECK (told IN ('nothing', 'queued', 'sending', 'told', 'uncertain', 'dead')
                       AND (told = 'nothing' OR state = 'ended')),
            UNIQUE (call_key),
            FOREIGN KEY (session_id) REFERENCES sessions (id),
            FOREIGN KEY (address_id) REFERENCES addresses (id),
            FOREIGN KEY (operator_id) REFERENCES operators (id)
        )
        """
    )
    op.execute("CREATE UNIQUE INDEX handover_is_open_once ON handovers (session_id) WHERE ended_at IS NULL")
    op.execute("CREATE INDEX handovers_by_session ON handovers (session_id, asked_at)")
    op.execute("CREATE INDEX handovers_untold ON handovers (id) WHERE told IN ('queued', 'sending')")


def downgrade() -> None:
    op.execute("DROP TABLE handovers")
    op.execute("ALTER TABLE sessions DROP CONSTRAINT session_holds_what_comes_next")
    op.execute("ALTER TABLE sessions DROP COLUMN held_after")
