"""Numbers by the hour, how fast an answer begins, and which kinds of jobs are paused."""

from __future__ import annotations

from alembic import op

revision = "0055"
down_revision = "0054"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE turns ADD COLUMN first_token_ms INTEGER")
    op.execute(
        """CREATE TABLE hourly_stats (
             hour TIMESTAMP WITH TIME ZONE NOT NULL PRIMARY KEY,
             zone TEXT NOT NULL,
             counted_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
             messages BIGINT DEFAULT 0 NOT NULL,
             people BIGINT DEFAULT 0 NOT NULL,
             new_today BIGINT DEFAULT 0 NOT NULL,
             answers BIGINT DEFAULT 0 NOT NULL,
             errors BIGINT DEFAULT 0 NOT NULL,
             first_tokens INTEGER[] DEFAULT '{}' NOT NULL,
             calls BIGINT DEFAULT 0 NOT NULL,
             unknown_calls BIGINT DEFAULT 0 NOT NULL,
             cost_micro BIGINT DEFAULT 0 NOT NULL,
             input_tokens BIGINT DEFAULT 0 NOT NULL,
             cache_read_tokens BIGINT DEFAULT 0 NOT NULL,
             cache_write_tokens BIGINT DEFAULT 0 NOT NULL,
             output_tokens BIGINT DEFAULT 0 NOT NULL,
             summaries BIGINT DEFAULT 0 NOT NULL,
             handovers BIGINT DEFAULT 0 NOT NULL,
             jobs JSONB DEFAULT '{}'::jsonb NOT NULL,
             CONSTRAINT hour_counts_people_once CHECK (new_today BETWEEN 0 AND people))"""
    )
    op.execute(
        """CREATE TABLE job_kinds (
             kind TEXT NOT NULL PRIMARY KEY,
             paused BOOLEAN DEFAULT false NOT NULL,
             concurrency INTEGER,
             changed_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
             changed_by TEXT DEFAULT '' NOT NULL,
             CONSTRAINT job_kind_is_known CHECK (kind IN ('flush', 'compact', 'tidy')),
             CONSTRAINT job_concurrency CHECK (concurrency BETWEEN 1 AND 100))"""
    )
    op.execute(
        """CREATE INDEX links_by_time ON links USING brin (created_at)
           WITH (pages_per_range = 16, autosummarize = on)"""
    )
    op.execute("CREATE INDEX handovers_by_time ON handovers (asked_at)")


def downgrade() -> None:
    op.execute("DROP INDEX handovers_by_time")
    op.execute("DROP INDEX links_by_time")
    op.execute("DROP TABLE job_kinds")
    op.execute("DROP TABLE hourly_stats")
    op.execute("ALTER TABLE turns DROP COLUMN first_token_ms")
