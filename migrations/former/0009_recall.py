"""What can be found again: hidden messages, notes and an agent's files as passages with their words."""

from __future__ import annotations

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def _counting(table: str, lane: str, owner: str) -> tuple[str, ...]:
    """How often each word occurs in a table's passages, kept in `recall_words` by triggers."""
    return (
        f"""CREATE FUNCTION count_words_of_{table}() RETURNS trigger LANGUAGE plpgsql AS $$
       DECLARE sign int := CASE TG_OP WHEN 'INSERT' THEN 1 ELSE -1 END;
       BEGIN
         INSERT INTO recall_words AS w (lane, owner, lexeme, passages, terms)
         SELECT '{lane}', c.{owner}, t.lexeme, sign * count(*), sign * sum(t.terms)
           FROM changed c CROSS JOIN LATERAL (
                SELECT lexeme, cardinality(positions) AS terms FROM unnest(c.vector)
                UNION ALL SELECT '', c.terms) t
          GROUP BY c.{owner}, t.lexeme ORDER BY c.{owner}, t.lexeme
         ON CONFLICT (lane, owner, lexeme) DO UPDATE
            SET passages = w.passages + excluded.passages, terms = w.terms + excluded.terms;
         IF TG_OP = 'DELETE' THEN
           DELETE FROM recall_words w WHERE w.lane = '{lane}' AND w.passages <= 0
              AND w.owner IN (SELECT {owner} FROM changed);
         END IF;
         RETURN NULL;
       END $$""",
        f"""CREATE TRIGGER count_added_words AFTER INSERT ON {table} REFERENCING NEW TABLE AS changed
       FOR EACH STATEMENT EXECUTE FUNCTION count_words_of_{table}()""",
        f"""CREATE TRIGGER count_gone_words AFTER DELETE ON {table} REFERENCING OLD TABLE AS changed
       FOR EACH STATEMENT EXECUTE FUNCTION count_words_of_{table}()""",
    )


STATEMENTS = (
    """CREATE FUNCTION recall_keys(bigint, tsvector) RETURNS text[]
       LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
         SELECT array_agg($1 || ':' || lexeme) FROM unnest(tsvector_to_array($2)) AS lexeme $$""",
    "ALTER TABLE sessions ADD COLUMN indexed_turn BIGINT DEFAULT 0 NOT NULL",
    "CREATE INDEX sessions_unindexed ON sessions (id) WHERE indexed_turn < base_turn",
    """
    CREATE TABLE passages (
        session_id BIGINT NOT NULL,
        number BIGINT NOT NULL,
        seq BIGINT NOT NULL,
        part INTEGER NOT NULL,
        turn_no BIGINT NOT NULL,
        author TEXT NOT NULL,
        speaker TEXT DEFAULT '' NOT NULL,
        sitting INTEGER NOT NULL,
        at TIMESTAMP WITH TIME ZONE NOT NULL,
        text TEXT NOT NULL,
        terms INTEGER NOT NULL,
        vector TSVECTOR NOT NULL,
        indexed_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
        PRIMARY KEY (session_id, number),
        CONSTRAINT passage_entry FOREIGN KEY(session_id, seq) REFERENCES entries (session_id, seq),
        CONSTRAINT passage_is_indexed_once UNIQUE (session_id, seq, part)
    )
    """,
    """
    CREATE INDEX passages_by_word ON passages
     USING gin (recall_keys(session_id, vector)) WITH (fastupdate = off)
    """,
    "CREATE INDEX passages_by_time ON passages (session_id, at)",
    """
    CREATE TABLE knowledge (
        agent_id BIGINT NOT NULL,
        path TEXT NOT NULL,
        place INTEGER NOT NULL,
        sha256 BYTEA NOT NULL,
        heading TEXT DEFAULT '' NOT NULL,
        text TEXT NOT NULL,
        terms INTEGER NOT NULL,
        vector TSVECTOR NOT NULL,
        indexed_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
        PRIMARY KEY (agent_id, path, place),
        FOREIGN KEY(agent_id) REFERENCES agents (id)
    )
    """,
    """
    CREATE INDEX knowledge_by_word ON knowledge
     USING gin (recall_keys(agent_id, vector)) WITH (fastupdate = off)
    """,
    """
    CREATE TABLE note_words (
        note_id BIGINT NOT NULL,
        party_id BIGINT NOT NULL,
        terms INTEGER NOT NULL,
        vector TSVECTOR NOT NULL,
        indexed_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
        PRIMARY KEY (note_id),
        CONSTRAINT note_words_note FOREIGN KEY(note_id) REFERENCES notes (id) ON DELETE CASCADE
    )
    """,
    """
    CREATE INDEX notes_by_word ON note_words
     USING gin (recall_keys(party_id, vector)) WITH (fastupdate = off)
    """,
    """
    CREATE TABLE recall_words (
        lane TEXT NOT NULL,
        owner BIGINT NOT NULL,
        lexeme TEXT NOT NULL,
        passages BIGINT NOT NULL,
        terms BIGINT NOT NULL,
        PRIMARY KEY (lane, owner, lexeme),
        CONSTRAINT recall_words_lane CHECK (lane IN ('said', 'knowledge'))
    )
    """,
    *_counting("passages", "said", "session_id"),
    *_counting("knowledge", "knowledge", "agent_id"),
    """CREATE FUNCTION forget_words_of_note() RETURNS trigger LANGUAGE plpgsql AS $$
       BEGIN
         DELETE FROM note_words WHERE note_id = NEW.id;
         RETURN NULL;
       END $$""",
    """CREATE TRIGGER forget_words_of_note
       AFTER UPDATE OF text, forgotten_at, superseded_by, party_id ON notes
       FOR EACH ROW EXECUTE FUNCTION forget_words_of_note()""",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    op.execute("DROP TRIGGER forget_words_of_note ON notes")
    op.execute("DROP TABLE recall_words, note_words, knowledge, passages")
    for function in ("forget_words_of_note", "count_words_of_knowledge", "count_words_of_passages"):
        op.execute(f"DROP FUNCTION {function}()")
    op.execute("DROP FUNCTION recall_keys(bigint, tsvector)")
    op.execute("DROP INDEX sessions_unindexed")
    op.execute("ALTER TABLE sessions DROP COLUMN indexed_turn")
