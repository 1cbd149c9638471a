"""Secretary mode: connections with business accounts, their messages, and drafts that wait for an owner."""

from __future__ import annotations

from alembic import op

revision = "0091"
down_revision = "0090"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """CREATE TABLE secretary_connections (
             -- One row per connection of a person's business account with a bot.
             bot_id BIGINT NOT NULL,
             connection_id TEXT NOT NULL,
             owner_id BIGINT NOT NULL,
             -- The owner's private chat with the bot, where drafts are shown.
             owner_chat_id BIGINT NOT NULL,
             owner_name TEXT NOT NULL,
             language TEXT NOT NULL,
             -- Whether the owner lets the bot answer for them.
             can_reply BOOLEAN NOT NULL,
             is_enabled BOOLEAN NOT NULL,
             -- When the owner made the connection, by Telegram: an older one never ends a newer one.
             established_at TIMESTAMP WITH TIME ZONE NOT NULL,
             created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
             ended_at TIMESTAMP WITH TIME ZONE,
             PRIMARY KEY (bot_id, connection_id),
             CONSTRAINT secretary_connection_end CHECK (is_enabled = (ended_at IS NULL)),
             CONSTRAINT secretary_connection_is_short
               CHECK (char_length(connection_id) BETWEEN 1 AND 256 AND char_length(owner_name) <= 128
                      AND char_length(language) <= 10))"""
    )
    op.execute(
        """CREATE UNIQUE INDEX secretary_connection_of_owner ON secretary_connections (bot_id, owner_id)
             WHERE is_enabled"""
    )
    op.execute(
        """CREATE TABLE secretary_messages (
             -- Which message of a customer's chat is which entry; its ids are those of the owner's account.
             bot_id BIGINT NOT NULL,
             owner_id BIGINT NOT NULL,
             chat_id BIGINT NOT NULL,
             message_id BIGINT NOT NULL,
             session_id BIGINT NOT NULL,
             turn_no BIGINT NOT NULL,
             -- NULL for an answer that the bot sent.
             seq BIGINT,
             is_customers BOOLEAN NOT NULL,
             at TIMESTAMP WITH TIME ZONE NOT NULL,
             PRIMARY KEY (bot_id, owner_id, chat_id, message_id),
             CONSTRAINT secretary_message_turn
               FOREIGN KEY (session_id, turn_no) REFERENCES turns (session_id, turn_no))"""
    )
    op.execute(
        "CREATE INDEX secretary_messages_of_session ON secretary_messages (session_id, turn_no, message_id)"
    )
    op.execute(
        """CREATE TABLE secretary_drafts (
             -- The answer of one turn of a customer's conversation, and what became of it.
             session_id BIGINT NOT NULL,
             turn_no BIGINT NOT NULL,
             draft_id BIGINT GENERATED ALWAYS AS IDENTITY UNIQUE,
             bot_id BIGINT NOT NULL,
             owner_id BIGINT NOT NULL,
             chat_id BIGINT NOT NULL,
             state TEXT DEFAULT 'due' NOT NULL,
             -- The operator lets answers to this chat go without approval.
             is_automatic BOOLEAN NOT NULL,
             -- When the owner pressed Send, or wrote the text to send.
             approved_at TIMESTAMP WITH TIME ZONE,
             -- The owner's own text, sent in the place of the answer.
             own_text TEXT,
             -- The message in the owner's chat that shows the draft, and the state that it shows.
             prompt_id BIGINT,
             shown_state TEXT DEFAULT '' NOT NULL,
             -- The message that asks the owner for their own text.
             change_id BIGINT,
             -- Telegram's id of the message in the customer's chat.
             message_id BIGINT,
             next_try_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
             created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
             expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
             ended_at TIMESTAMP WITH TIME ZONE,
             -- Later requests leave the answer out, for it was not sent.
             is_hidden BOOLEAN DEFAULT false NOT NULL,
             error TEXT DEFAULT '' NOT NULL,
             PRIMARY KEY (session_id, turn_no),
             CONSTRAINT secretary_draft_turn
               FOREIGN KEY (session_id, turn_no) REFERENCES turns (session_id, turn_no),
             CONSTRAINT secretary_draft_state CHECK (state IN (
               'due', 'showing', 'shown', 'approved', 'sending', 'sent', 'uncertain', 'refused', 'dropped',
               'outdated', 'expired', 'closed', 'failed')),
             CONSTRAINT secretary_draft_end CHECK (
               (state IN ('due', 'showing', 'shown', 'approved', 'sending')) = (ended_at IS NULL)),
             -- Nothing goes to a customer that neither the owner nor the operator has allowed.
             CONSTRAINT secretary_draft_is_approved CHECK (
               state NOT IN ('approved', 'sending', 'sent', 'uncertain', 'refused')
               OR is_automatic OR approved_at IS NOT NULL),
             CONSTRAINT secretary_draft_is_hidden CHECK (
               NOT is_hidden OR ended_at IS NOT NULL AND (state <> 'sent' OR own_text IS NOT NULL)),
             CONSTRAINT secretary_draft_is_short
               CHECK (char_length(own_text) BETWEEN 1 AND 4096 AND char_length(error) <= 300))"""
    )
    op.execute(
        """CREATE INDEX secretary_drafts_open ON secretary_drafts (bot_id, next_try_at)
             WHERE ended_at IS NULL OR shown_state <> state"""
    )
    op.execute(
        """CREATE UNIQUE INDEX secretary_drafts_by_change ON secretary_drafts (bot_id, owner_id, change_id)
             WHERE change_id IS NOT NULL"""
    )
    # The answer of a turn that ended late gives way to a message that came before it, in the next turn.
    op.execute(
        """ALTER TABLE turn_entries DROP CONSTRAINT turn_entry_is_replaced_later,
             ADD CONSTRAINT turn_entry_is_replaced_by_another CHECK (replaced_by <> seq) NOT VALID"""
    )
    # All customers of one owner share a network, whose cap is the owner's own.
    op.execute(
        """ALTER TABLE parties DROP CONSTRAINT network_is_a_hash,
             ADD CONSTRAINT network_is_a_hash
               CHECK (network IS NULL OR network = 'guests' OR network ~ '^secretary:[0-9]+:[0-9]+$'
                      OR (network ~ '^[0-9a-f]{32}$' AND network_at IS NOT NULL)) NOT VALID"""
    )


def downgrade() -> None:
    for table in ("secretary_drafts", "secretary_messages", "secretary_connections"):
        op.execute(f"DROP TABLE {table}")
    op.execute(
        """ALTER TABLE turn_entries DROP CONSTRAINT turn_entry_is_replaced_by_another,
             ADD CONSTRAINT turn_entry_is_replaced_later CHECK (replaced_by > seq) NOT VALID"""
    )
    op.execute("UPDATE parties SET network = NULL WHERE network LIKE 'secretary:%'")
    op.execute(
        """ALTER TABLE parties DROP CONSTRAINT network_is_a_hash,
             ADD CONSTRAINT network_is_a_hash
               CHECK (network IS NULL OR network = 'guests'
                      OR (network ~ '^[0-9a-f]{32}$' AND network_at IS NOT NULL)) NOT VALID"""
    )
