"""Processes that stood still or crashed, and the turns and jobs that they were busy with."""

from __future__ import annotations

from alembic import op

from migrations.alert_kinds import allow_alert_kind, forbid_alert_kind

revision = "0069"
down_revision = "0068"
branch_labels = None
depends_on = None

KIND = "process_stopped"


def upgrade() -> None:
    op.execute(
        """CREATE TABLE process_faults (
             -- A process that its watch-dog ended, or that crashed: ids and places in the code only.
             id UUID NOT NULL PRIMARY KEY,
             at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
             role TEXT NOT NULL,
             cause TEXT NOT NULL,
             -- Innermost frames of its stack.
             place TEXT DEFAULT '' NOT NULL,
             -- What it was busy with; faults of the same work are counted together.
             work TEXT NOT NULL,
             session_id BIGINT,
             turn_no BIGINT,
             CONSTRAINT process_fault_role CHECK (role IN ('web', 'bot', 'worker')),
             CONSTRAINT process_fault_turn_has_a_session CHECK (turn_no IS NULL OR session_id IS NOT NULL),
             CONSTRAINT process_fault_is_short
               CHECK (char_length(cause) <= 100 AND char_length(place) <= 2000
                      AND char_length(work) <= 400))"""
    )
    op.execute("CREATE INDEX process_faults_by_work ON process_faults (work)")
    op.execute("CREATE INDEX process_faults_by_time ON process_faults (at)")
    op.execute("ALTER TABLE turns ADD COLUMN process_faults SMALLINT DEFAULT 0 NOT NULL")
    op.execute(
        """ALTER TABLE turns ADD CONSTRAINT turn_stopped_two_processes
             CHECK (process_faults >= 0
                    AND (error_code IS DISTINCT FROM 'process_stopped' OR process_faults >= 2))"""
    )
    allow_alert_kind(KIND)


def downgrade() -> None:
    forbid_alert_kind(KIND)
    op.execute("ALTER TABLE turns DROP COLUMN process_faults")
    op.execute("DROP TABLE process_faults")
