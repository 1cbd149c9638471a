"""The human desk: snooze, labels and a rating of a handover, private notes, canned replies, the contact."""

from __future__ import annotations

from alembic import op

revision = "0056"
down_revision = "0055"
branch_labels = None
depends_on = None

_ENDS = "'', 'operator', 'person', 'unanswered', 'silent', 'off'"


def upgrade() -> None:
    # Of what operators change beside the words: who looked before somebody else's change is refused.
    op.execute(
        f"""ALTER TABLE handovers
              ADD COLUMN version BIGINT DEFAULT 0 NOT NULL,
              ADD COLUMN snoozed_at TIMESTAMP WITH TIME ZONE,
              ADD COLUMN snoozed_until TIMESTAMP WITH TIME ZONE,
              ADD COLUMN labels TEXT[] DEFAULT '{{}}'::text[] NOT NULL,
              ADD COLUMN rating INTEGER,
              ADD COLUMN rated_at TIMESTAMP WITH TIME ZONE,
              DROP CONSTRAINT handover_end_has_a_reason,
              ADD CONSTRAINT handover_end_has_a_reason
                CHECK (ended_by IN ({_ENDS}, 'resolved') AND (ended_by = '') = (state <> 'ended')),
              ADD CONSTRAINT handover_snooze_has_both_ends
                CHECK ((snoozed_at IS NULL) = (snoozed_until IS NULL) AND snoozed_at < snoozed_until),
              ADD CONSTRAINT handover_labels_are_few CHECK (cardinality(labels) <= 10),
              ADD CONSTRAINT handover_rating
                CHECK (rating BETWEEN 1 AND 5 AND ended_by = 'resolved'
                       AND rated_at IS NOT NULL OR rating IS NULL AND rated_at IS NULL)"""
    )
    op.execute("CREATE INDEX handovers_resolved ON handovers (ended_at) WHERE ended_by = 'resolved'")
    op.execute(
        """CREATE TABLE private_notes (
             -- What operators write for each other beside a conversation: no model and no person ever reads
             -- it.
             id BIGSERIAL NOT NULL PRIMARY KEY,
             public_id UUID DEFAULT gen_random_uuid() NOT NULL UNIQUE,
             session_id BIGINT NOT NULL REFERENCES sessions (id),
             operator_id BIGINT REFERENCES operators (id),
             operator_name TEXT NOT NULL,
             cid TEXT NOT NULL,
             body TEXT NOT NULL,
             created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
             CONSTRAINT private_note_is_stored_once UNIQUE (session_id, cid),
             CONSTRAINT private_note_is_short CHECK (char_length(body) BETWEEN 1 AND 4000))"""
    )
    op.execute(
        """CREATE TABLE canned_replies (
             -- Words that operators send often, under a short name; the page fills in `{{name}}` and the
             -- like.
             name TEXT NOT NULL PRIMARY KEY,
             body TEXT NOT NULL,
             version BIGINT DEFAULT 1 NOT NULL,
             changed_by TEXT NOT NULL,
             changed_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
             CONSTRAINT canned_reply_name CHECK (name ~ '^[a-z0-9][a-z0-9_-]{0,39}$'),
             CONSTRAINT canned_reply_is_short CHECK (char_length(body) BETWEEN 1 AND 4000))"""
    )
    # What the page and the site say of who writes there: page, browser, locale, e-mail, attributes.
    op.execute("ALTER TABLE addresses ADD COLUMN contact JSONB DEFAULT '{}'::jsonb NOT NULL")


def downgrade() -> None:
    op.execute("ALTER TABLE addresses DROP COLUMN contact")
    op.execute("DROP TABLE canned_replies")
    op.execute("DROP TABLE private_notes")
    op.execute("DROP INDEX handovers_resolved")
    op.execute("UPDATE handovers SET ended_by = 'operator' WHERE ended_by = 'resolved'")
    op.execute(
        f"""ALTER TABLE handovers
              DROP CONSTRAINT handover_rating,
              DROP CONSTRAINT handover_labels_are_few,
              DROP CONSTRAINT handover_snooze_has_both_ends,
              DROP CONSTRAINT handover_end_has_a_reason,
              ADD CONSTRAINT handover_end_has_a_reason
                CHECK (ended_by IN ({_ENDS}) AND (ended_by = '') = (state <> 'ended')),
              DROP COLUMN rated_at, DROP COLUMN rating, DROP COLUMN labels, DROP COLUMN snoozed_until,
              DROP COLUMN snoozed_at, DROP COLUMN version"""
    )
