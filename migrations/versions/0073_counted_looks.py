"""Counts and indexes that let the looks of the background read little, however much was said today."""

from __future__ import annotations

from alembic import op

revision = "0073"
down_revision = "0072"
branch_labels = None
depends_on = None

NEARLY_FULL = """(coalesce(CASE WHEN context_limit > 0 THEN context_tokens * 100.0 / context_limit END, -1)
                 >= 90)::int"""
EVENTS = {"INSERT": "new_rows", "UPDATE": "old_rows and new_rows", "DELETE": "old_rows"}


def upgrade() -> None:
    op.execute(
        """CREATE TABLE listed_minutes (
             -- Conversations of `session_list` by the minute of their last activity, for a day. Each change
             -- of the list inserts what it adds and takes away, so no transaction waits for another one; the
             -- worker that keeps the list folds these rows into one per minute.
             minute TIMESTAMP WITH TIME ZONE NOT NULL,
             sessions INTEGER NOT NULL,
             -- Those of them whose context is full to 90 % or more.
             nearly_full INTEGER NOT NULL,
             is_folded BOOLEAN DEFAULT false NOT NULL,
             CONSTRAINT folded_minute_counts
               CHECK (NOT is_folded OR sessions >= 0 AND nearly_full >= 0))
           WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000)"""
    )
    op.execute("CREATE UNIQUE INDEX listed_minute_is_folded_once ON listed_minutes (minute) WHERE is_folded")
    op.execute("CREATE INDEX listed_minutes_unfolded ON listed_minutes (minute) WHERE NOT is_folded")
    op.execute("LOCK TABLE session_list IN SHARE ROW EXCLUSIVE MODE")
    op.execute(
        f"""INSERT INTO listed_minutes
            SELECT date_trunc('minute', last_active_at), count(*), sum({NEARLY_FULL}), true FROM session_list
             WHERE last_active_at > now() - interval '25 hours' GROUP BY 1"""
    )
    for event, rows in EVENTS.items():
        added = f"SELECT last_active_at, 1 AS n, {NEARLY_FULL} AS is_full FROM new_rows"
        taken = f"SELECT last_active_at, -1 AS n, {NEARLY_FULL} AS is_full FROM old_rows"
        changes = {"INSERT": added, "UPDATE": f"{added} UNION ALL {taken}", "DELETE": taken}[event]
        name = f"list_counts_{event.lower()}"
        op.execute(
            f"""CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS
                $$ BEGIN
                     INSERT INTO listed_minutes (minute, sessions, nearly_full)
                     SELECT date_trunc('minute', last_active_at), sum(n), sum(n * is_full)
                       FROM ({changes}) c WHERE last_active_at > now() - interval '25 hours'
                      GROUP BY 1 HAVING sum(n) <> 0 OR sum(n * is_full) <> 0;
                     RETURN NULL;
                   END $$"""
        )
        referenced = " ".join(
            f"{row.removesuffix('_rows').upper()} TABLE AS {row}" for row in rows.split(" and ")
        )
        op.execute(
            f"""CREATE TRIGGER {name} AFTER {event} ON session_list REFERENCING {referenced}
                FOR EACH STATEMENT EXECUTE FUNCTION {name}()"""
        )
    # Digits change seldom: an index of the sum itself would have to be written by each turn.
    op.execute(
        """ALTER TABLE spend_days
             ADD COLUMN digits INTEGER GENERATED ALWAYS AS (char_length(spent_micro::text)) STORED"""
    )
    op.execute("CREATE INDEX spend_days_by_digits ON spend_days (day, digits)")
    op.execute("CREATE INDEX turns_refused_in_total ON turns (ended_at) WHERE refused_scope = 'total'")
    op.execute(
        """CREATE INDEX jobs_dead_of_kind ON jobs (kind, ended_at)
            WHERE state = 'dead' AND NOT outcome ? 'cancelled'"""
    )


def downgrade() -> None:
    op.execute("DROP INDEX jobs_dead_of_kind")
    op.execute("DROP INDEX turns_refused_in_total")
    op.execute("ALTER TABLE spend_days DROP COLUMN digits")
    for event in EVENTS:
        name = f"list_counts_{event.lower()}"
        op.execute(f"DROP TRIGGER {name} ON session_list")
        op.execute(f"DROP FUNCTION {name}()")
    op.execute("DROP TABLE listed_minutes")
