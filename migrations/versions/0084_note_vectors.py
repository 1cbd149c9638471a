"""Vectors of what notes mean, and the notes that may lack one."""

from __future__ import annotations

from alembic import op

revision = "0084"
down_revision = "0083"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """CREATE TABLE note_vectors (
             -- What a searchable note means, as an encoder says it; deleted with the words of the note.
             note_id BIGINT NOT NULL,
             party_id BIGINT NOT NULL,
             -- Name of the model; vectors of other models cannot be compared, and are made again.
             encoder TEXT NOT NULL,
             -- Both are NULL for a text at which the encoder ended, so that it is not given the text again.
             signs BIT VARYING,
             vector BYTEA,
             encoded_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
             PRIMARY KEY (note_id),
             CONSTRAINT vector_of_note FOREIGN KEY (note_id) REFERENCES note_words (note_id)
               ON DELETE CASCADE,
             CONSTRAINT note_vector_encoder CHECK (length(encoder) BETWEEN 1 AND 200),
             CONSTRAINT note_vector_numbers CHECK (
               (vector IS NULL) = (signs IS NULL)
               AND length(vector) BETWEEN 64 AND 4096 AND length(signs) = length(vector)))"""
    )
    op.execute(
        """CREATE TABLE unencoded_notes (
             -- Searchable notes that have no vector of the present model yet.
             note_id BIGINT NOT NULL,
             PRIMARY KEY (note_id),
             CONSTRAINT unencoded_note_of FOREIGN KEY (note_id) REFERENCES note_words (note_id)
               ON DELETE CASCADE)
           WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000)"""
    )
    op.execute(
        """CREATE FUNCTION notes_are_unencoded() RETURNS trigger LANGUAGE plpgsql AS
           $$ BEGIN
                INSERT INTO unencoded_notes SELECT note_id FROM new_rows ORDER BY 1 ON CONFLICT DO NOTHING;
                RETURN NULL;
              END $$"""
    )
    op.execute(
        """CREATE TRIGGER notes_are_unencoded AFTER INSERT ON note_words REFERENCING NEW TABLE AS new_rows
             FOR EACH STATEMENT EXECUTE FUNCTION notes_are_unencoded()"""
    )
    op.execute("INSERT INTO unencoded_notes SELECT note_id FROM note_words")


def downgrade() -> None:
    op.execute("DROP TRIGGER notes_are_unencoded ON note_words")
    op.execute("DROP FUNCTION notes_are_unencoded()")
    op.execute("DROP TABLE unencoded_notes")
    op.execute("DROP TABLE note_vectors")
