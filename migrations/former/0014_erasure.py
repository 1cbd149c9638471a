"""Erasure: what has been forgotten up to which turn, the log of it, and nothing written back afterwards."""

from __future__ import annotations

from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

STATEMENTS = (
    "ALTER TABLE sessions ADD COLUMN erased_turn BIGINT DEFAULT 0 NOT NULL",
    "ALTER TABLE sessions ADD CONSTRAINT session_hides_what_was_erased CHECK (erased_turn <= base_turn)",
    """
    CREATE TABLE erasures (
        id BIGSERIAL NOT NULL,
        at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
        party_hash BYTEA NOT NULL,
        actor TEXT NOT NULL,
        scope TEXT NOT NULL,
        state TEXT DEFAULT 'running' NOT NULL,
        step INTEGER DEFAULT 0 NOT NULL,
        counts JSONB DEFAULT '{}'::jsonb NOT NULL,
        work JSONB,
        finished_at TIMESTAMP WITH TIME ZONE,
        PRIMARY KEY (id),
        CONSTRAINT erasure_scope CHECK (scope IN ('everything', 'messages', 'retention')),
        CONSTRAINT erasure_state CHECK (state IN ('running', 'done')),
        CONSTRAINT erasure_keeps_no_ids CHECK ((state = 'done') = (work IS NULL)),
        CONSTRAINT erasure_end_has_a_time CHECK ((state = 'done') = (finished_at IS NOT NULL))
    )
    """,
    "CREATE INDEX erasures_running ON erasures (id) WHERE state = 'running'",
    """
    CREATE TABLE erasure_wishes (
        session_id BIGINT NOT NULL,
        asked_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
        PRIMARY KEY (session_id),
        FOREIGN KEY(session_id) REFERENCES sessions (id)
    )
    """,
    """CREATE FUNCTION erased_blocks(jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
         SELECT coalesce(jsonb_agg(x.block ORDER BY x.place), '[{"type": "text", "text": "[erased]"}]'::jsonb)
           FROM (SELECT DISTINCT ON (y.place) y.place, y.block FROM (
                   SELECT CASE WHEN b ->> 'type' IN ('tool_use', 'tool_result') THEN n ELSE 0 END AS place, n,
                          CASE b ->> 'type'
                            WHEN 'tool_use' THEN jsonb_build_object(
                              'type', 'tool_use', 'id', b -> 'id', 'name', b -> 'name', 'input', '{}'::jsonb)
                            WHEN 'tool_result' THEN jsonb_build_object(
                              'type', 'tool_result', 'tool_use_id', b -> 'tool_use_id', 'text', '[erased]',
                              'is_error', coalesce(b -> 'is_error', 'false'::jsonb))
                            ELSE '{"type": "text", "text": "[erased]"}'::jsonb END AS block
                     FROM jsonb_array_elements($1) WITH ORDINALITY AS e(b, n)) y
                  ORDER BY y.place, y.n) x $$""",
    """CREATE FUNCTION nothing_of_erased_turns() RETURNS trigger LANGUAGE plpgsql AS $$
       DECLARE erased bigint;
       BEGIN
         SELECT erased_turn INTO erased FROM sessions WHERE id = NEW.session_id FOR SHARE;
         IF coalesce(NEW.through_turn, NEW.from_turn) <= erased
            OR EXISTS (SELECT FROM flushes WHERE id = NEW.flush_id AND outcome <> 'running') THEN
           RETURN NULL;
         END IF;
         RETURN NEW;
       END $$""",
    """CREATE TRIGGER notes_not_of_erased_turns BEFORE INSERT ON notes
       FOR EACH ROW EXECUTE FUNCTION nothing_of_erased_turns()""",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    op.execute("DROP TRIGGER notes_not_of_erased_turns ON notes")
    op.execute("DROP FUNCTION nothing_of_erased_turns()")
    op.execute("DROP FUNCTION erased_blocks(jsonb)")
    op.execute("DROP TABLE erasure_wishes")
    op.execute("DROP TABLE erasures")
    op.execute("ALTER TABLE sessions DROP COLUMN erased_turn")
