"""Browsers that are notified while no page is open: the key that signs for us, and who is told where."""

from __future__ import annotations

from alembic import op

revision = "0060"
down_revision = "0059"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """CREATE TABLE push_keys (
             -- What signs the notifications of this installation, sealed; browsers know its public half.
             id INTEGER DEFAULT 1 NOT NULL PRIMARY KEY,
             public_key TEXT NOT NULL,
             key_id TEXT NOT NULL,
             sealed BYTEA NOT NULL,
             created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
             CONSTRAINT push_key_is_one_row CHECK (id = 1))"""
    )
    op.execute(
        """CREATE TABLE push_subscriptions (
             -- A browser that is notified while no page of ours is open in it.
             id BIGSERIAL NOT NULL PRIMARY KEY,
             endpoint TEXT NOT NULL UNIQUE,
             p256dh BYTEA NOT NULL,
             auth BYTEA NOT NULL,
             operator_id BIGINT REFERENCES operators (id),
             -- Of the login by which the operator asked; when somebody ends that, a trigger ends this.
             login_hash BYTEA,
             visitor_hash BYTEA,
             language TEXT DEFAULT '' NOT NULL,
             created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
             -- When the page that asked was open last.
             renewed_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
             -- When a page of the same person, in any browser, was surely open last.
             here_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
             -- Of the newest words that were told: each is told once at most.
             told_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
             succeeded_at TIMESTAMP WITH TIME ZONE,
             failures INTEGER DEFAULT 0 NOT NULL,
             CONSTRAINT push_visitor FOREIGN KEY (visitor_hash) REFERENCES visitors (token_hash)
               ON DELETE CASCADE,
             CONSTRAINT push_is_an_operators_or_a_visitors
               CHECK (num_nonnulls(operator_id, visitor_hash) = 1
                      AND (operator_id IS NULL) = (login_hash IS NULL)),
             CONSTRAINT push_endpoint
               CHECK (endpoint ~ '^https?://' AND char_length(endpoint) <= 2000),
             CONSTRAINT push_keys_of_a_browser
               CHECK (octet_length(p256dh) = 65 AND octet_length(auth) = 16),
             CONSTRAINT push_failures CHECK (failures BETWEEN 0 AND 9))"""
    )
    op.execute("CREATE INDEX push_by_operator ON push_subscriptions (operator_id)")
    op.execute("CREATE INDEX push_by_visitor ON push_subscriptions (visitor_hash)")
    # A login that was ended takes its browser's notifications along; one that ran out by itself does not.
    op.execute(
        """CREATE FUNCTION end_push_of_login() RETURNS trigger LANGUAGE plpgsql AS
           $$ BEGIN DELETE FROM push_subscriptions WHERE login_hash = OLD.token_hash; RETURN NULL; END $$"""
    )
    op.execute(
        """CREATE TRIGGER end_push_of_login AFTER DELETE ON operator_sessions FOR EACH ROW
             WHEN (OLD.expires_at > now()) EXECUTE FUNCTION end_push_of_login()"""
    )


def downgrade() -> None:
    op.execute("DROP TRIGGER end_push_of_login ON operator_sessions")
    op.execute("DROP FUNCTION end_push_of_login()")
    op.execute("DROP TABLE push_subscriptions")
    op.execute("DROP TABLE push_keys")
