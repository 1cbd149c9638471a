"""Lists of what is to be made searchable and tidied, so that no look reads all notes and conversations."""

from __future__ import annotations

from alembic import op

revision = "0071"
down_revision = "0070"
branch_labels = None
depends_on = None

QUEUE = "WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000)"


def upgrade() -> None:
    # All who write there have ended: what they wrote is listed below, and what comes later by the triggers.
    op.execute("LOCK TABLE sessions, addresses, notes IN SHARE ROW EXCLUSIVE MODE")
    op.execute(
        f"""CREATE TABLE left_sessions (
             -- Conversations that an address has left, or that went on without one: once their turns are
             -- searchable to the last, or an address leads to them again, the row is deleted.
             session_id BIGINT NOT NULL,
             CONSTRAINT left_session_is_one CHECK (session_id > 0))
           {QUEUE}"""
    )
    op.execute(
        """INSERT INTO left_sessions
           SELECT s.id FROM sessions s
            WHERE s.indexed_turn < s.next_turn - 1
              AND NOT EXISTS (SELECT FROM addresses a WHERE a.session_id = s.id)"""
    )
    op.execute(
        """CREATE FUNCTION session_is_left() RETURNS trigger LANGUAGE plpgsql AS
           $$ BEGIN
                INSERT INTO left_sessions VALUES (OLD.session_id);
                RETURN NULL;
              END $$"""
    )
    op.execute(
        """CREATE TRIGGER session_is_left AFTER UPDATE OF session_id ON addresses FOR EACH ROW
             WHEN (NEW.session_id <> OLD.session_id) EXECUTE FUNCTION session_is_left()"""
    )
    op.execute(
        """CREATE TRIGGER session_is_left_for_good AFTER DELETE ON addresses FOR EACH ROW
             EXECUTE FUNCTION session_is_left()"""
    )
    op.execute(
        """CREATE FUNCTION left_session_goes_on() RETURNS trigger LANGUAGE plpgsql AS
           $$ BEGIN
                IF NOT EXISTS (SELECT FROM addresses WHERE session_id = NEW.id) THEN
                  INSERT INTO left_sessions VALUES (NEW.id);
                END IF;
                RETURN NULL;
              END $$"""
    )
    op.execute(
        """CREATE TRIGGER left_session_goes_on AFTER UPDATE OF answered_turn ON sessions FOR EACH ROW
             WHEN (NEW.answered_turn > OLD.answered_turn) EXECUTE FUNCTION left_session_goes_on()"""
    )
    op.execute(
        f"""CREATE TABLE unindexed_notes (
             -- Notes that are new or have changed, and may not be found by their words yet.
             note_id BIGINT NOT NULL,
             CONSTRAINT unindexed_note_is_one CHECK (note_id > 0))
           {QUEUE}"""
    )
    op.execute(
        """INSERT INTO unindexed_notes
           SELECT n.id FROM notes n
            WHERE n.forgotten_at IS NULL AND n.superseded_by IS NULL AND n.authority <> 'tool'
              AND NOT EXISTS (SELECT FROM note_words w WHERE w.note_id = n.id)"""
    )
    op.execute(
        """CREATE FUNCTION note_is_unindexed() RETURNS trigger LANGUAGE plpgsql AS
           $$ BEGIN
                INSERT INTO unindexed_notes VALUES (NEW.id);
                RETURN NULL;
              END $$"""
    )
    op.execute(
        """CREATE TRIGGER note_is_unindexed
             AFTER INSERT OR UPDATE OF text, forgotten_at, superseded_by, party_id, authority ON notes
             FOR EACH ROW WHEN (NEW.forgotten_at IS NULL AND NEW.superseded_by IS NULL
                                AND NEW.authority <> 'tool')
             EXECUTE FUNCTION note_is_unindexed()"""
    )
    op.execute(
        f"""CREATE TABLE due_tidyings (
             -- People whose notes may have to be tidied, and from when: the nightly look deletes the rows,
             -- and writes one for the next night while there is something.
             party_id BIGINT NOT NULL,
             due_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
             -- A note came, of which no tidying knows.
             new_note BOOLEAN DEFAULT false NOT NULL,
             CONSTRAINT due_tidying_of CHECK (party_id > 0))
           {QUEUE}"""
    )
    op.execute("CREATE INDEX due_tidyings_by_time ON due_tidyings (due_at)")
    op.execute("CREATE INDEX due_tidyings_by_party ON due_tidyings (party_id)")
    op.execute(
        """INSERT INTO due_tidyings
           SELECT party_id, now(), bool_or(created_at > now() - interval '25 hours') FROM notes
            WHERE created_at > now() - interval '25 hours' OR undo_until < now()
               OR durability = 'ephemeral' AND expired_at IS NULL AND superseded_by IS NULL
                  AND forgotten_at IS NULL
            GROUP BY party_id"""
    )
    op.execute(
        """INSERT INTO due_tidyings
           SELECT party_id, undo_until FROM notes WHERE undo_until >= now()"""
    )
    op.execute(
        """CREATE FUNCTION tidying_is_due() RETURNS trigger LANGUAGE plpgsql AS
           $$ BEGIN
                INSERT INTO due_tidyings
                VALUES (NEW.party_id, coalesce(NEW.undo_until, now()), TG_OP = 'INSERT');
                RETURN NULL;
              END $$"""
    )
    op.execute(
        """CREATE TRIGGER tidying_is_due
             AFTER INSERT OR UPDATE OF party_id, undo_until, durability, expired_at, superseded_by,
                                       forgotten_at ON notes
             FOR EACH ROW WHEN (NEW.undo_until IS NOT NULL
                                OR NEW.forgotten_at IS NULL AND NEW.superseded_by IS NULL)
             EXECUTE FUNCTION tidying_is_due()"""
    )


def downgrade() -> None:
    op.execute("DROP TRIGGER tidying_is_due ON notes")
    op.execute("DROP FUNCTION tidying_is_due()")
    op.execute("DROP TRIGGER note_is_unindexed ON notes")
    op.execute("DROP FUNCTION note_is_unindexed()")
    op.execute("DROP TRIGGER left_session_goes_on ON sessions")
    op.execute("DROP FUNCTION left_session_goes_on()")
    op.execute("DROP TRIGGER session_is_left_for_good ON addresses")
    op.execute("DROP TRIGGER session_is_left ON addresses")
    op.execute("DROP FUNCTION session_is_left()")
    for table in ("due_tidyings", "unindexed_notes", "left_sessions"):
        op.execute(f"DROP TABLE {table}")
