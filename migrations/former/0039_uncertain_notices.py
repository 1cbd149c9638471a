"""A person is told of an answer that may not have arrived; what was uncertain before stays untold."""

from __future__ import annotations

from alembic import op

revision = "0039"
down_revision = "0038"
branch_labels = None
depends_on = None

TOLD = (
    """CREATE FUNCTION uncertain_parts_are_told() RETURNS trigger LANGUAGE plpgsql AS $$
       BEGIN
         IF NEW.state = 'uncertain' THEN
           INSERT INTO uncertain_notices AS n (session_id, turn_no, address_id)
           VALUES (NEW.session_id, NEW.turn_no, NEW.address_id)
           ON CONFLICT (session_id, turn_no) DO UPDATE
              SET state = 'due', round = n.round + 1, tries = 0, due_at = now() WHERE n.state = 'over';
         ELSE
           UPDATE uncertain_notices SET due_at = now()
            WHERE session_id = NEW.session_id AND turn_no = NEW.turn_no AND state <> 'over';
         END IF;
         RETURN NULL;
       END $$""",
    """CREATE TRIGGER uncertain_parts_are_told AFTER INSERT ON deliveries
       FOR EACH ROW WHEN (NEW.channel = 'telegram' AND NEW.state = 'uncertain')
       EXECUTE FUNCTION uncertain_parts_are_told()""",
    """CREATE TRIGGER uncertain_parts_are_seen_to AFTER UPDATE OF state ON deliveries
       FOR EACH ROW WHEN (NEW.channel = 'telegram' AND (NEW.state = 'uncertain') <> (OLD.state = 'uncertain'))
       EXECUTE FUNCTION uncertain_parts_are_told()""",
)


def upgrade() -> None:
    op.execute(
        """
        CREATE TABLE uncertain_notices (
            id BIGSERIAL NOT NULL,
            session_id BIGINT NOT NULL,
            turn_no BIGINT NOT NULL,
            address_id BIGINT NOT NULL,
            state TEXT DEFAULT 'due' NOT NULL,
            round INTEGER DEFAULT 1 NOT NULL,
            tries INTEGER DEFAULT 0 NOT NULL,
            chat_id BIGINT,
            message_id BIGINT,
            due_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
            created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
            PRIMARY KEY (id),
            CONSTRAINT uncertain_notice_of_turn UNIQUE (session_id, turn_no),
            CONSTRAINT uncertain_notice_turn
                FOREIGN KEY (session_id, turn_no) REFERENCES turns (session_id, turn_no),
            CONSTRAINT uncertain_notice_state CHECK (state IN ('due', 'sending', 'shown', 'over')),
            CONSTRAINT uncertain_notice_is_somewhere
                CHECK (num_nulls(chat_id, message_id) = CASE state WHEN 'shown' THEN 0 ELSE 2 END),
            CONSTRAINT uncertain_notice_tries CHECK (round > 0 AND tries BETWEEN 0 AND 9),
            FOREIGN KEY (address_id) REFERENCES addresses (id)
        )
        """
    )
    op.execute("CREATE INDEX uncertain_notices_open ON uncertain_notices (due_at) WHERE state <> 'over'")
    op.execute(
        """INSERT INTO uncertain_notices (session_id, turn_no, address_id, state)
           SELECT DISTINCT ON (session_id, turn_no) session_id, turn_no, address_id, 'over'
             FROM deliveries WHERE state = 'uncertain' AND channel = 'telegram'"""
    )
    for statement in TOLD:
        op.execute(statement)


def downgrade() -> None:
    op.execute("DROP TRIGGER uncertain_parts_are_seen_to ON deliveries")
    op.execute("DROP TRIGGER uncertain_parts_are_told ON deliveries")
    op.execute("DROP FUNCTION uncertain_parts_are_told()")
    op.execute("DROP TABLE uncertain_notices")
