"""Numbers by the hour, how fast an answer begins, and which kinds of jobs are paused."""

from __future__ import annotations

from alembic import op

revision = "0055"
down_revision = "0054"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # From the person's message to the answer's first text; null where nothing was streamed.
    op.execute("ALTER TABLE turns ADD COLUMN first_token_ms INTEGER")
    op.execute(
        """CREATE TABLE hourly_stats (
             -- What was counted of one hour, by `dashboard/hourly_stats.py`; numbers of nobody in
             -- particular.
             hour TIMESTAMP WITH TIME ZONE NOT NULL PRIMARY KEY,
             -- Whose hours and days these are: another zone counts all of them once more.
             zone TEXT NOT NULL,
             counted_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
             messages BIGINT DEFAULT 0 NOT NULL,
             people BIGINT DEFAULT 0 NOT NULL,
             -- Of them, whoever wrote for the first time of that day: a day's people are the sum of its
             -- hours.
             new_today BIGINT DEFAULT 0 NOT NULL,
             answers BIGINT DEFAULT 0 NOT NULL,
             errors BIGINT DEFAULT 0 NOT NULL,
             -- How many answers began after how long, by `core/ops/latency.py`; empty where none did.
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
             -- By kind how many were done and how many failed.
             jobs JSONB DEFAULT '{}'::jsonb NOT NULL,
             CONSTRAINT hour_counts_people_once CHECK (new_today BETWEEN 0 AND people))"""
    )
    op.execute(
        """CREATE TABLE job_kinds (
             -- What an operator set for jobs of one kind; a kind without a row runs without bounds.
             kind TEXT NOT NULL PRIMARY KEY,
             paused BOOLEAN DEFAULT false NOT NULL,
             -- How many of them all workers together run at once; null is no bound.
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
