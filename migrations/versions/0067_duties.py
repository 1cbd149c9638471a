"""When each duty of the workers is due, which worker performs it, and how its runs ended."""

from __future__ import annotations

from alembic import op

from migrations.alert_kinds import allow_alert_kind, forbid_alert_kind

revision = "0067"
down_revision = "0066"
branch_labels = None
depends_on = None

KIND = "duty_late"


def upgrade() -> None:
    op.execute(
        """CREATE TABLE duties (
             -- Background work that the workers repeat by the clock: one row says when it is due, one worker
             -- claims it, and the row says how that went.
             name TEXT NOT NULL PRIMARY KEY,
             -- The period.
             seconds INTEGER NOT NULL,
             due_at TIMESTAMP WITH TIME ZONE NOT NULL,
             -- The worker that performs it now; the claim lapses with its heartbeat.
             leased_by BIGINT,
             epoch BIGINT DEFAULT 0 NOT NULL,
             since TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
             started_at TIMESTAMP WITH TIME ZONE,
             succeeded_at TIMESTAMP WITH TIME ZONE,
             duration_ms BIGINT,
             runs BIGINT DEFAULT 0 NOT NULL,
             failed_runs BIGINT DEFAULT 0 NOT NULL,
             -- Failures since the last success.
             failures INTEGER DEFAULT 0 NOT NULL,
             last_error TEXT DEFAULT '' NOT NULL,
             CONSTRAINT duty_has_a_period CHECK (seconds > 0),
             CONSTRAINT duty_counts_runs
               CHECK (failed_runs BETWEEN 0 AND runs AND failures BETWEEN 0 AND failed_runs),
             CONSTRAINT duty_error_is_short CHECK (char_length(last_error) <= 500))
           WITH (fillfactor = 50)"""
    )
    allow_alert_kind(KIND)


def downgrade() -> None:
    forbid_alert_kind(KIND)
    op.execute("DROP TABLE duties")
