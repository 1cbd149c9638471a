"""Databases that were created while a migration was still being written get the form that all others have."""

from __future__ import annotations

from alembic import op

revision = "0061"
down_revision = "0060"
branch_labels = None
depends_on = None

LATE = (
    # 0002 had no descriptions of pictures at first.
    "ALTER TABLE attachments ADD COLUMN IF NOT EXISTS description TEXT DEFAULT '' NOT NULL",
    # 0005 kept one decision per message, 0006 did not check its ratios.
    """DO $$ BEGIN
         IF (SELECT cardinality(conkey) FROM pg_constraint
              WHERE conrelid = 'prune_decisions'::regclass AND contype = 'p') = 2 THEN
           ALTER TABLE prune_decisions DROP CONSTRAINT prune_decisions_pkey;
           ALTER TABLE prune_decisions
             ADD CONSTRAINT prune_decisions_pkey PRIMARY KEY (session_id, seq, turn_no);
         END IF;
         IF NOT EXISTS (SELECT FROM pg_constraint WHERE conrelid = 'sessions'::regclass
                           AND conname = 'session_ratios_by_model') THEN
           ALTER TABLE sessions ADD CONSTRAINT session_ratios_by_model
             CHECK (jsonb_typeof(token_ratios) = 'object');
         END IF;
       END $$""",
    # 0033 had no indexes for the lists of jobs.
    "CREATE INDEX IF NOT EXISTS jobs_done_by_time ON jobs (ended_at) WHERE state = 'done'",
    "CREATE INDEX IF NOT EXISTS jobs_of_kind ON jobs (kind, id)",
    # 0038 did not know this alert.
    """DO $$ DECLARE rule text; BEGIN
         SELECT pg_get_constraintdef(oid) INTO rule FROM pg_constraint
          WHERE conrelid = 'alerts'::regclass AND conname = 'alert_kind';
         IF rule NOT LIKE '%''window_narrowed''%' THEN
           ALTER TABLE alerts DROP CONSTRAINT alert_kind;
           EXECUTE 'ALTER TABLE alerts ADD CONSTRAINT alert_kind '
             || replace(rule, '''stuck_turn''::text', '''window_narrowed''::text, ''stuck_turn''::text');
         END IF;
       END $$""",
    # 0040 did not notice the timeline of a promoted standby.
    """DO $$ BEGIN
         IF to_regproc('note_timeline') IS NULL THEN
           CREATE FUNCTION note_timeline() RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER AS $body$
       DECLARE now_on text := left(pg_walfile_name(pg_current_wal_insert_lsn()), 8); before text;
       BEGIN
         SELECT timeline INTO before FROM deployment WHERE timeline <> now_on FOR UPDATE;
         IF NOT FOUND THEN
           RETURN false;
         END IF;
         UPDATE deployment SET timeline = now_on,
                log_epoch = CASE WHEN before = '' THEN log_epoch ELSE
                  greatest(log_epoch + 1, extract(epoch FROM clock_timestamp())::bigint) END;
         RETURN before <> '';
       END $body$;
           EXECUTE format('ALTER FUNCTION note_timeline() SET search_path = %I, pg_temp', current_schema());
         END IF;
       END $$""",
    # 0056 counted private notes by an identity, which a restricted role may not use.
    """DO $$ DECLARE next bigint; BEGIN
         IF (SELECT attidentity FROM pg_attribute
              WHERE attrelid = 'private_notes'::regclass AND attname = 'id') <> '' THEN
           SELECT coalesce(max(id), 0) + 1 INTO next FROM private_notes;
           ALTER TABLE private_notes ALTER COLUMN id DROP IDENTITY;
           CREATE SEQUENCE private_notes_id_seq OWNED BY private_notes.id;
           PERFORM setval('private_notes_id_seq', next, false);
           ALTER TABLE private_notes ALTER COLUMN id SET DEFAULT nextval('private_notes_id_seq');
         END IF;
       END $$""",
)


def upgrade() -> None:
    for statement in LATE:
        op.execute(statement)


def downgrade() -> None:
    """Keep the form that all databases have."""
