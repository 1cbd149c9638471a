"""Tickets of event streams, how far a place has read, and opinions with words from the widget too."""

from __future__ import annotations

from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

STATEMENTS = (
    "ALTER TABLE one_time_codes ADD COLUMN wishes JSONB",
    "ALTER TABLE one_time_codes DROP CONSTRAINT one_time_code_purpose",
    """ALTER TABLE one_time_codes ADD CONSTRAINT one_time_code_purpose
         CHECK (purpose IN ('telegram_owner', 'link', 'stream'))""",
    "ALTER TABLE addresses ADD COLUMN read_seq BIGINT DEFAULT 0 NOT NULL",
    # What was said before anybody counted is not news.
    "UPDATE addresses a SET read_seq = s.next_event_seq - 1 FROM sessions s WHERE s.id = a.session_id",
    "ALTER TABLE feedback ALTER COLUMN opinion DROP NOT NULL",
    "ALTER TABLE feedback ADD COLUMN words TEXT DEFAULT '' NOT NULL",
    "ALTER TABLE feedback ADD COLUMN cids TEXT[] DEFAULT '{}'::text[] NOT NULL",
)
BACK = (
    "ALTER TABLE feedback DROP COLUMN cids",
    "ALTER TABLE feedback DROP COLUMN words",
    "DELETE FROM feedback WHERE opinion IS NULL",
    "ALTER TABLE feedback ALTER COLUMN opinion SET NOT NULL",
    "ALTER TABLE addresses DROP COLUMN read_seq",
    "DELETE FROM one_time_codes WHERE purpose = 'stream'",
    "ALTER TABLE one_time_codes DROP CONSTRAINT one_time_code_purpose",
    """ALTER TABLE one_time_codes ADD CONSTRAINT one_time_code_purpose
         CHECK (purpose IN ('telegram_owner', 'link'))""",
    "ALTER TABLE one_time_codes DROP COLUMN wishes",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    for statement in BACK:
        op.execute(statement)
