"""When each duty of the workers is due, which worker performs it, and how its runs ended."""

from __future__ import annotations

from alembic import op

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
    _replace("', '".join([*_list_kinds(), KIND]))


def downgrade() -> None:
    op.execute(
        f"""DELETE FROM alert_sends USING alerts
             WHERE alerts.id = alert_sends.alert_id AND alerts.kind = '{KIND}'"""
    )
    op.execute(f"DELETE FROM alerts WHERE kind = '{KIND}'")
    _replace("', '".join(kind for kind in _list_kinds() if kind != KIND))
    op.execute("DROP TABLE duties")


def _list_kinds() -> list[str]:
    """Return the kinds that the constraint allows now; other versions add theirs to the same one."""
    found = op.get_bind().exec_driver_sql(
        """SELECT (regexp_matches(pg_get_constraintdef(oid), '''([a-z_0-9]+)''', 'g'))[1]
             FROM pg_constraint WHERE conname = 'alert_kind'"""
    )
    return [str(row[0]) for row in found]


def _replace(kinds: str) -> None:
    op.execute(
        f"""ALTER TABLE alerts DROP CONSTRAINT alert_kind,
              ADD CONSTRAINT alert_kind CHECK (kind IN ('{kinds}'))"""
    )
