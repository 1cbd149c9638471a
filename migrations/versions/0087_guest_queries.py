"""Guest queries: questions that people ask a bot in chats where it is no member."""

from __future__ import annotations

from alembic import op

revision = "0087"
down_revision = "0086"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """CREATE TABLE guest_queries (
             -- One row per question asked in a chat where the bot is a guest.
             bot_id BIGINT NOT NULL,
             update_id BIGINT NOT NULL,
             -- Telegram's id of the question; it takes one answer.
             query_id TEXT NOT NULL,
             caller_id BIGINT NOT NULL,
             chat_id BIGINT NOT NULL,
             language TEXT NOT NULL,
             -- Key of the text that is sent instead of an answer; empty for a question that is answered.
             notice TEXT NOT NULL,
             -- The turn that answers it; NULL until its message is stored, and for a notice.
             session_id BIGINT,
             turn_no BIGINT,
             state TEXT DEFAULT 'waiting' NOT NULL,
             -- What the call that is under way sends.
             sends TEXT DEFAULT '' NOT NULL,
             -- Whether the line that says that the answer follows was tried.
             holding_tried BOOLEAN DEFAULT false NOT NULL,
             -- Telegram's id of the message in the chat, for its edit.
             inline_message_id TEXT,
             asked_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
             ended_at TIMESTAMP WITH TIME ZONE,
             error TEXT DEFAULT '' NOT NULL,
             PRIMARY KEY (bot_id, update_id),
             CONSTRAINT guest_query_turn
               FOREIGN KEY (session_id, turn_no) REFERENCES turns (session_id, turn_no),
             CONSTRAINT guest_query_state CHECK (state IN ('waiting', 'sending', 'shown', 'done', 'lost')),
             CONSTRAINT guest_query_sends
               CHECK (sends IN ('', 'holding', 'answer') AND (state <> 'sending' OR sends <> '')),
             CONSTRAINT guest_query_end CHECK ((state IN ('done', 'lost')) = (ended_at IS NOT NULL)),
             CONSTRAINT guest_query_shown CHECK (state <> 'shown' OR inline_message_id IS NOT NULL),
             CONSTRAINT guest_query_turn_is_whole CHECK ((session_id IS NULL) = (turn_no IS NULL)),
             CONSTRAINT guest_query_is_short
               CHECK (char_length(query_id) <= 256 AND char_length(language) <= 10
                      AND char_length(notice) <= 40 AND char_length(inline_message_id) <= 1000
                      AND char_length(error) <= 300))"""
    )
    op.execute(
        """CREATE INDEX guest_queries_open ON guest_queries (bot_id, asked_at)
             WHERE state IN ('waiting', 'sending', 'shown')"""
    )
    op.execute("CREATE INDEX guest_queries_of_caller ON guest_queries (bot_id, caller_id, asked_at)")
    op.execute("CREATE INDEX guest_queries_of_turn ON guest_queries (session_id, turn_no)")
    # All guest chats share the network `guests`, whose cap is their own.
    op.execute(
        """ALTER TABLE parties DROP CONSTRAINT network_is_a_hash,
             ADD CONSTRAINT network_is_a_hash
               CHECK (network IS NULL OR network = 'guests'
                      OR (network ~ '^[0-9a-f]{32}$' AND network_at IS NOT NULL)) NOT VALID"""
    )


def downgrade() -> None:
    op.execute("DROP TABLE guest_queries")
    op.execute("UPDATE parties SET network = NULL WHERE network = 'guests'")
    op.execute(
        """ALTER TABLE parties DROP CONSTRAINT network_is_a_hash,
             ADD CONSTRAINT network_is_a_hash
               CHECK (network IS NULL OR (network ~ '^[0-9a-f]{32}$' AND network_at IS NOT NULL)) NOT VALID"""
    )
