"""The log in the shortest form that reads the same: plain words as text, and nothing that follows from it.

`entries` becomes `entry_rows`, in place and without a row being written; a view of the old name reads and
writes whole rows. So every version of the program may run beside every other: whichever stores a message, it
is stored short, found by its key, and read whole. Rows of before stay as they are and count for both.

Nobody writes while it happens: a message that comes meanwhile is not acknowledged and is sent again.
"""

from __future__ import annotations

from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None

STATEMENTS = (
    """CREATE FUNCTION key_cid(text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
         SELECT CASE WHEN $1 LIKE 'web:%' THEN substr($1, 5)
                     WHEN $1 LIKE 'operator:%' THEN substr($1, 10) END $$""",
    """CREATE VIEW entries AS
       SELECT session_id, seq,
              coalesce(role, CASE author WHEN 'assistant' THEN 'assistant' ELSE 'user' END) AS role, author,
              CASE WHEN words IS NULL THEN blocks
                   ELSE jsonb_build_array(jsonb_build_object('type', 'text', 'text', words)) END AS blocks,
              tokens, dedupe_key, coalesce(cid, key_cid(dedupe_key)) AS cid, replaces_seq, at
         FROM entry_rows""",
    "ALTER VIEW entries ALTER COLUMN at SET DEFAULT now()",
    """CREATE FUNCTION plain_words(jsonb) RETURNS text LANGUAGE sql STABLE PARALLEL SAFE AS $$
         SELECT words FROM (SELECT $1 -> 0 ->> 'text' AS words) AS first
          WHERE $1 = jsonb_build_array(jsonb_build_object('type', 'text', 'text', words)) $$""",
    """CREATE FUNCTION entries_are_rows() RETURNS trigger LANGUAGE plpgsql AS $$
       DECLARE kept entry_rows;
       BEGIN
         IF TG_OP = 'DELETE' THEN
           DELETE FROM entry_rows WHERE session_id = OLD.session_id AND seq = OLD.seq;
           RETURN OLD;
         END IF;
         kept.session_id := NEW.session_id;
         kept.seq := NEW.seq;
         kept.author := NEW.author;
         kept.role := nullif(NEW.role, CASE NEW.author WHEN 'assistant' THEN 'assistant' ELSE 'user' END);
         kept.words := plain_words(NEW.blocks);
         kept.blocks := CASE WHEN kept.words IS NULL THEN NEW.blocks END;
         kept.tokens := NEW.tokens;
         kept.dedupe_key := NEW.dedupe_key;
         kept.cid := nullif(NEW.cid, key_cid(NEW.dedupe_key));
         kept.replaces_seq := NEW.replaces_seq;
         kept.at := NEW.at;
         IF TG_OP = 'INSERT' THEN
           INSERT INTO entry_rows (session_id, seq, role, author, blocks, tokens, dedupe_key, cid,
                                   replaces_seq, at, words)
           VALUES (kept.session_id, kept.seq, kept.role, kept.author, kept.blocks, kept.tokens,
                   kept.dedupe_key, kept.cid, kept.replaces_seq, kept.at, kept.words);
         ELSE
           UPDATE entry_rows SET session_id = kept.session_id, seq = kept.seq, role = kept.role,
                  author = kept.author, blocks = kept.blocks, tokens = kept.tokens,
                  dedupe_key = kept.dedupe_key, cid = kept.cid, replaces_seq = kept.replaces_seq,
                  at = kept.at, words = kept.words
            WHERE session_id = OLD.session_id AND seq = OLD.seq;
         END IF;
         RETURN NEW;
       END $$""",
    """CREATE TRIGGER entries_are_rows INSTEAD OF INSERT OR UPDATE OR DELETE ON entries
       FOR EACH ROW EXECUTE FUNCTION entries_are_rows()""",
)


def upgrade() -> None:
    op.execute("LOCK TABLE sessions, entries, turns IN ACCESS EXCLUSIVE MODE")
    op.execute("ALTER TABLE entries RENAME TO entry_rows")
    _call("entries", "entry_rows")
    op.execute("ALTER TABLE entry_rows ALTER COLUMN role DROP NOT NULL, ALTER COLUMN blocks DROP NOT NULL")
    op.execute("ALTER TABLE entry_rows ADD COLUMN words TEXT")
    op.execute(
        "ALTER TABLE entry_rows ADD CONSTRAINT entry_is_words_or_blocks "
        "CHECK (num_nonnulls(words, blocks) = 1)"
    )
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    op.execute("LOCK TABLE sessions, entry_rows, turns IN ACCESS EXCLUSIVE MODE")
    op.execute("SELECT set_config('evertalk.erasing', 'yes', true)")
    op.execute("ALTER TABLE entry_rows DROP CONSTRAINT entry_is_words_or_blocks")
    op.execute(
        """UPDATE entry_rows r SET role = e.role, blocks = e.blocks, cid = e.cid FROM entries e
            WHERE e.session_id = r.session_id AND e.seq = r.seq
              AND (r.role IS NULL OR r.blocks IS NULL OR r.cid IS DISTINCT FROM e.cid)"""
    )
    op.execute("SELECT set_config('evertalk.erasing', '', true)")
    op.execute("DROP VIEW entries")
    op.execute("DROP FUNCTION entries_are_rows()")
    op.execute("DROP FUNCTION plain_words(jsonb)")
    op.execute("DROP FUNCTION key_cid(text)")
    # What the foreign keys have still to look at comes before the table itself changes.
    op.execute("SET CONSTRAINTS ALL IMMEDIATE")
    op.execute("ALTER TABLE entry_rows DROP COLUMN words")
    op.execute("ALTER TABLE entry_rows ALTER COLUMN role SET NOT NULL, ALTER COLUMN blocks SET NOT NULL")
    op.execute("ALTER TABLE entry_rows RENAME TO entries")
    _call("entry_rows", "entries")


def _call(before: str, after: str) -> None:
    """What is named after its table follows it; from 18 on PostgreSQL names what must not be null, too."""
    op.execute(f"ALTER INDEX {before}_pkey RENAME TO {after}_pkey")
    op.execute(
        f"""DO $$ DECLARE name text; BEGIN
              FOR name IN SELECT conname FROM pg_constraint
                           WHERE conrelid = '{after}'::regclass AND contype = 'n'
                             AND starts_with(conname, '{before}_') LOOP
                EXECUTE format('ALTER TABLE {after} RENAME CONSTRAINT %I TO %I', name,
                               '{after}' || substr(name, {len(before) + 1}));
              END LOOP;
            END $$"""
    )
