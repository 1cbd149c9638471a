"""Numbers by the hour are counted by increments: what has ended since, who was counted, and how far."""

from __future__ import annotations

from alembic import op

revision = "0064"
down_revision = "0063"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # A former version counts whole hours and knows nothing of this column: what it wrote is counted again.
    op.execute("ALTER TABLE hourly_stats ADD COLUMN added_at TIMESTAMP WITH TIME ZONE")
    op.execute(
        """CREATE TABLE hour_turns (
             -- Turns of a session that have ended and are not counted yet, written by the transaction that
             -- ends them and deleted by the one that counts them.
             session_id BIGINT NOT NULL,
             after_turn BIGINT NOT NULL,
             through_turn BIGINT NOT NULL,
             CONSTRAINT hour_turns_are_some CHECK (after_turn < through_turn))
           WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000)"""
    )
    op.execute(
        """CREATE TABLE hour_jobs (
             -- Jobs that have ended, or no longer count as such, and are not counted yet.
             kind TEXT NOT NULL,
             ended_at TIMESTAMP WITH TIME ZONE NOT NULL,
             done INTEGER NOT NULL,
             failed INTEGER NOT NULL)"""
    )
    op.execute(
        """CREATE TABLE hour_open (
             -- Messages of turns that have not ended, as they are counted so far.
             session_id BIGINT NOT NULL,
             turn_no BIGINT NOT NULL,
             hour TIMESTAMP WITH TIME ZONE NOT NULL,
             messages INTEGER NOT NULL,
             PRIMARY KEY (session_id, turn_no),
             CONSTRAINT hour_open_counts CHECK (messages >= 0))"""
    )
    op.execute("CREATE INDEX hour_open_by_hour ON hour_open (hour)")
    op.execute(
        """CREATE TABLE hour_people (
             -- Who is counted in which hour, for some days: a person is counted once per hour and per day.
             party_id BIGINT NOT NULL,
             hour TIMESTAMP WITH TIME ZONE NOT NULL,
             PRIMARY KEY (party_id, hour))"""
    )
    op.execute("CREATE INDEX hour_people_by_hour ON hour_people (hour)")
    op.execute(
        """CREATE TABLE hour_marks (
             -- How far each table is counted: all rows through `edge`, and of later ones those in `above`.
             -- `next_edge` becomes the edge once no transaction older than `next_writer` runs.
             source TEXT NOT NULL PRIMARY KEY,
             edge BIGINT DEFAULT 0 NOT NULL,
             above BIGINT[] DEFAULT '{}' NOT NULL,
             next_edge BIGINT DEFAULT 0 NOT NULL,
             next_writer XID8 DEFAULT '0' NOT NULL,
             next_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
             -- Of `turns`: the first hour of which there is anything to count, and the place in the list of
             -- open turns at which the next look goes on.
             since TIMESTAMP WITH TIME ZONE,
             open_session BIGINT DEFAULT 0 NOT NULL,
             open_turn BIGINT DEFAULT 0 NOT NULL,
             CONSTRAINT hour_mark_source CHECK (source IN ('usage', 'links', 'handovers', 'turns')),
             CONSTRAINT hour_mark_order CHECK (edge <= next_edge))"""
    )
    # All who write there have ended: no smaller number comes later.
    op.execute("LOCK TABLE usage, links, handovers, jobs, sessions IN SHARE ROW EXCLUSIVE MODE")
    for source in ("usage", "links", "handovers"):
        op.execute(
            f"""INSERT INTO hour_marks (source, edge, next_edge)
                SELECT '{source}', coalesce(max(id), 0), coalesce(max(id), 0) FROM {source}"""
        )
    op.execute("INSERT INTO hour_marks (source) VALUES ('turns')")
    op.execute(
        """CREATE FUNCTION hour_hears_of_turns() RETURNS trigger LANGUAGE plpgsql AS
           $$ BEGIN
                INSERT INTO hour_turns VALUES (NEW.id, OLD.answered_turn, NEW.answered_turn);
                RETURN NULL;
              END $$"""
    )
    op.execute(
        """CREATE TRIGGER hour_hears_of_turns AFTER UPDATE OF answered_turn ON sessions FOR EACH ROW
             WHEN (NEW.answered_turn > OLD.answered_turn) EXECUTE FUNCTION hour_hears_of_turns()"""
    )
    # A failure that an operator retries or cancels was none: it is taken off the hour that it was counted in.
    op.execute(
        """CREATE FUNCTION job_is_failed(jobs) RETURNS boolean LANGUAGE sql IMMUTABLE AS
           $$ SELECT $1.state = 'dead' AND NOT $1.outcome ? 'cancelled' AND $1.last_error <> '' $$"""
    )
    op.execute(
        """CREATE FUNCTION hour_hears_of_jobs() RETURNS trigger LANGUAGE plpgsql AS
           $$ BEGIN
                IF OLD.ended_at IS NOT NULL AND (OLD.state = 'done' OR job_is_failed(OLD)) THEN
                  INSERT INTO hour_jobs
                  VALUES (OLD.kind, OLD.ended_at, -(OLD.state = 'done')::int, -job_is_failed(OLD)::int);
                END IF;
                IF NEW.ended_at IS NOT NULL AND (NEW.state = 'done' OR job_is_failed(NEW)) THEN
                  INSERT INTO hour_jobs
                  VALUES (NEW.kind, NEW.ended_at, (NEW.state = 'done')::int, job_is_failed(NEW)::int);
                END IF;
                RETURN NULL;
              END $$"""
    )
    op.execute(
        """CREATE TRIGGER hour_hears_of_jobs AFTER UPDATE OF state, outcome, last_error, ended_at ON jobs
             FOR EACH ROW WHEN (NEW.state IN ('done', 'dead') OR OLD.state IN ('done', 'dead'))
             EXECUTE FUNCTION hour_hears_of_jobs()"""
    )


def downgrade() -> None:
    op.execute("DROP TRIGGER hour_hears_of_jobs ON jobs")
    op.execute("DROP FUNCTION hour_hears_of_jobs()")
    op.execute("DROP FUNCTION job_is_failed(jobs)")
    op.execute("DROP TRIGGER hour_hears_of_turns ON sessions")
    op.execute("DROP FUNCTION hour_hears_of_turns()")
    for table in ("hour_marks", "hour_people", "hour_open", "hour_jobs", "hour_turns"):
        op.execute(f"DROP TABLE {table}")
    op.execute("ALTER TABLE hourly_stats DROP COLUMN added_at")
