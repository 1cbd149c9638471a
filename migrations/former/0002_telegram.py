"""Telegram: bots, who may talk with them, which message is which, and one poller at a time."""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

STATEMENTS = (
    """
    ALTER TABLE addresses ADD COLUMN title TEXT DEFAULT '' NOT NULL,
        ADD COLUMN settings JSONB DEFAULT '{}'::jsonb NOT NULL,
        ADD COLUMN unreachable_since TIMESTAMP WITH TIME ZONE
    """,
    """
    ALTER TABLE attachments ADD COLUMN name TEXT DEFAULT '' NOT NULL,
        ADD COLUMN description TEXT DEFAULT '' NOT NULL
    """,
    """
    ALTER TABLE deliveries DROP CONSTRAINT delivery_state,
        ADD CONSTRAINT delivery_state
            CHECK (state IN ('queued', 'sending', 'sent', 'delivered', 'uncertain', 'dead'))
    """,
    """
    DROP INDEX deliveries_pending
    """,
    """
    CREATE INDEX deliveries_pending ON deliveries (channel, created_at)
        WHERE state IN ('queued', 'sending', 'sent')
    """,
    """
    CREATE TABLE leases (
        name TEXT NOT NULL,
        leased_by BIGINT,
        epoch BIGINT DEFAULT 0 NOT NULL,
        taken_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
        PRIMARY KEY (name),
        FOREIGN KEY(leased_by) REFERENCES workers (id)
    )
    """,
    """
    CREATE TABLE telegram_bots (
        bot_id BIGINT NOT NULL,
        username TEXT DEFAULT '' NOT NULL,
        agent_id BIGINT NOT NULL,
        audience TEXT DEFAULT 'personal' NOT NULL,
        access TEXT DEFAULT 'pairing' NOT NULL,
        mode TEXT DEFAULT 'polling' NOT NULL,
        problem TEXT DEFAULT '' NOT NULL,
        heard_at TIMESTAMP WITH TIME ZONE,
        created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
        PRIMARY KEY (bot_id),
        CONSTRAINT telegram_bot_audience CHECK (audience IN ('personal', 'public')),
        CONSTRAINT telegram_bot_access CHECK (access IN ('pairing', 'allowlist', 'open')),
        CONSTRAINT telegram_bot_mode CHECK (mode IN ('polling', 'webhook')),
        FOREIGN KEY(agent_id) REFERENCES agents (id)
    )
    """,
    """
    CREATE TABLE telegram_access (
        bot_id BIGINT NOT NULL,
        chat_id BIGINT NOT NULL,
        state TEXT DEFAULT 'pending' NOT NULL,
        owner BOOLEAN DEFAULT false NOT NULL,
        name TEXT DEFAULT '' NOT NULL,
        username TEXT DEFAULT '' NOT NULL,
        code TEXT,
        asked_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
        told_at TIMESTAMP WITH TIME ZONE,
        decided_at TIMESTAMP WITH TIME ZONE,
        decided_by TEXT DEFAULT '' NOT NULL,
        PRIMARY KEY (bot_id, chat_id),
        CONSTRAINT telegram_access_state CHECK (state IN ('pending', 'allowed', 'refused')),
        CONSTRAINT telegram_access_decided CHECK ((decided_at IS NULL) = (state = 'pending')),
        FOREIGN KEY(bot_id) REFERENCES telegram_bots (bot_id)
    )
    """,
    """
    CREATE UNIQUE INDEX telegram_access_code ON telegram_access (code) WHERE state = 'pending'
    """,
    """
    CREATE TABLE telegram_messages (
        bot_id BIGINT NOT NULL,
        chat_id BIGINT NOT NULL,
        message_id BIGINT NOT NULL,
        session_id BIGINT NOT NULL,
        seq BIGINT,
        turn_no BIGINT NOT NULL,
        part INTEGER,
        at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
        PRIMARY KEY (bot_id, chat_id, message_id),
        CONSTRAINT telegram_message_session FOREIGN KEY(session_id) REFERENCES sessions (id),
        CONSTRAINT telegram_message_in_or_out CHECK ((seq IS NULL) = (part IS NOT NULL))
    )
    """,
    """
    CREATE INDEX telegram_messages_of_turn ON telegram_messages (session_id, turn_no)
    """,
    """
    CREATE TABLE one_time_codes (
        code_hash BYTEA NOT NULL,
        purpose TEXT NOT NULL,
        bot_id BIGINT,
        party_id BIGINT,
        created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
        expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
        used_at TIMESTAMP WITH TIME ZONE,
        PRIMARY KEY (code_hash),
        CONSTRAINT one_time_code_purpose CHECK (purpose IN ('telegram_owner', 'link')),
        FOREIGN KEY(bot_id) REFERENCES telegram_bots (bot_id),
        FOREIGN KEY(party_id) REFERENCES parties (id)
    )
    """,
    """
    CREATE TABLE feedback (
        session_id BIGINT NOT NULL,
        turn_no BIGINT NOT NULL,
        opinion TEXT NOT NULL,
        source TEXT DEFAULT '' NOT NULL,
        at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
        PRIMARY KEY (session_id, turn_no),
        CONSTRAINT feedback_turn FOREIGN KEY(session_id, turn_no) REFERENCES turns (session_id, turn_no),
        CONSTRAINT feedback_opinion CHECK (opinion IN ('good', 'bad'))
    )
    """,
)
TABLES = ("leases", "telegram_access", "telegram_messages", "one_time_codes", "feedback", "telegram_bots")


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    for table in TABLES:
        op.execute(f"DROP TABLE {table}")
    op.execute("UPDATE deliveries SET state = 'uncertain' WHERE state = 'sending'")
    op.execute("ALTER TABLE deliveries DROP CONSTRAINT delivery_state")
    op.execute(
        "ALTER TABLE deliveries ADD CONSTRAINT delivery_state "
        "CHECK (state IN ('queued', 'sent', 'delivered', 'uncertain', 'dead'))"
    )
    op.execute("DROP INDEX deliveries_pending")
    op.execute("CREATE INDEX deliveries_pending ON deliveries (channel, created_at) WHERE state = 'queued'")
    op.execute("ALTER TABLE attachments DROP COLUMN name, DROP COLUMN description")
    for column in ("title", "settings", "unreachable_since"):
        op.execute(f"ALTER TABLE addresses DROP COLUMN {column}")
