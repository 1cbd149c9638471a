"""Vectors of what passages mean, and the conversations whose passages may lack one."""

from __future__ import annotations

from alembic import op

revision = "0079"
down_revision = "0078"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """CREATE TABLE passage_vectors (
             -- What a passage means, as an encoder says it, made after the turns. A search looks at the signs
             -- of all passages of a conversation, and at the bytes of the nearest ones.
             session_id BIGINT NOT NULL,
             number BIGINT NOT NULL,
             -- Name of the model; vectors of other models cannot be compared, and are made again.
             encoder TEXT NOT NULL,
             -- Both are NULL for a text at which the encoder ended, so that it is not given the text again.
             signs BIT VARYING,
             vector BYTEA,
             encoded_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
             PRIMARY KEY (session_id, number),
             CONSTRAINT vector_of_passage FOREIGN KEY (session_id, number)
               REFERENCES passages (session_id, number) ON DELETE CASCADE,
             CONSTRAINT vector_encoder CHECK (length(encoder) BETWEEN 1 AND 200),
             CONSTRAINT vector_numbers CHECK (
               (vector IS NULL) = (signs IS NULL)
               AND length(vector) BETWEEN 64 AND 4096 AND length(signs) = length(vector)))"""
    )
    op.execute(
        """CREATE TABLE unencoded_sessions (
             -- Conversations with passages that are new since the worker last found none without a vector.
             session_id BIGINT NOT NULL,
             -- Counts what was added, so that a listing is only deleted if nothing came meanwhile.
             listings BIGINT DEFAULT 1 NOT NULL,
             PRIMARY KEY (session_id),
             CONSTRAINT unencoded_session_of FOREIGN KEY (session_id) REFERENCES sessions (id),
             CONSTRAINT listed_at_least_once CHECK (listings > 0))
           WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000)"""
    )
    op.execute(
        """CREATE FUNCTION passages_are_unencoded() RETURNS trigger LANGUAGE plpgsql AS
           $$ BEGIN
                INSERT INTO unencoded_sessions AS u (session_id)
                SELECT DISTINCT session_id FROM new_rows ORDER BY 1
                    ON CONFLICT (session_id) DO UPDATE SET listings = u.listings + 1;
                RETURN NULL;
              END $$"""
    )
    op.execute(
        """CREATE TRIGGER passages_are_unencoded AFTER INSERT ON passages REFERENCING NEW TABLE AS new_rows
             FOR EACH STATEMENT EXECUTE FUNCTION passages_are_unencoded()"""
    )
    op.execute("INSERT INTO unencoded_sessions (session_id) SELECT DISTINCT session_id FROM passages")


def downgrade() -> None:
    op.execute("DROP TRIGGER passages_are_unencoded ON passages")
    op.execute("DROP FUNCTION passages_are_unencoded()")
    op.execute("DROP TABLE unencoded_sessions")
    op.execute("DROP TABLE passage_vectors")
