"""Summaries of imports, which the worker writes in the background."""

from __future__ import annotations

from alembic import op

revision = "0094"
down_revision = "0093"
branch_labels = None
depends_on = None

_KINDS = "'flush', 'compact', 'tidy'"


def upgrade() -> None:
    op.execute(
        """ALTER TABLE past_imports
             ADD COLUMN summaries TEXT DEFAULT 'off' NOT NULL,
             ADD COLUMN summarised_turns BIGINT DEFAULT 0 NOT NULL,
             ADD CONSTRAINT import_summaries CHECK (
               summaries IN ('off', 'due', 'done', 'capped', 'stopped')) NOT VALID,
             ADD CONSTRAINT import_summarised CHECK (summarised_turns >= 0) NOT VALID"""
    )
    op.execute(
        """COMMENT ON COLUMN past_imports.summaries IS
           'whether the worker summarises it: `off` before it is whole, `capped` once the money is used up'"""
    )
    op.execute(
        "COMMENT ON COLUMN past_imports.summarised_turns IS 'turns that summaries cover, newest first'"
    )
    op.execute("CREATE INDEX import_summary_due ON past_imports (session_id) WHERE summaries = 'due'")
    op.execute(
        """CREATE TABLE past_summaries (
             -- The summary of a range of an import's turns; recall finds its items as passages.
             session_id BIGINT NOT NULL,
             from_turn BIGINT NOT NULL,
             through_turn BIGINT NOT NULL,
             -- Empty where no model could write it, or a message of the range was erased.
             ledger JSONB DEFAULT '{}'::jsonb NOT NULL,
             passages INTEGER DEFAULT 0 NOT NULL,
             audit JSONB DEFAULT '{}'::jsonb NOT NULL,
             model TEXT DEFAULT '' NOT NULL,
             job_id BIGINT NOT NULL,
             written_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
             PRIMARY KEY (session_id, from_turn),
             CONSTRAINT past_summary_of_import FOREIGN KEY (session_id) REFERENCES past_imports (session_id),
             CONSTRAINT past_summary_range CHECK (from_turn > 0 AND from_turn <= through_turn),
             CONSTRAINT past_summary_passages CHECK (passages >= 0))"""
    )
    _allow(f"{_KINDS}, 'import'")


def downgrade() -> None:
    op.execute("DELETE FROM jobs WHERE kind = 'import'")
    op.execute("DELETE FROM job_kinds WHERE kind = 'import'")
    _allow(_KINDS)
    op.execute("DELETE FROM passages WHERE author = 'summary'")
    op.execute("DROP TABLE past_summaries")
    op.execute("ALTER TABLE past_imports DROP COLUMN summaries, DROP COLUMN summarised_turns")


def _allow(kinds: str) -> None:
    for table, name in (("jobs", "job_kind"), ("job_kinds", "job_kind_is_known")):
        op.execute(f"ALTER TABLE {table} DROP CONSTRAINT {name}")
        op.execute(f"ALTER TABLE {table} ADD CONSTRAINT {name} CHECK (kind IN ({kinds})) NOT VALID")
