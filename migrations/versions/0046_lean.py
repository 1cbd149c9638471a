"""A turn writes less: it locks nothing that is there for good, and its audit is short."""

from __future__ import annotations

from alembic import op

revision = "0046"
down_revision = "0045"
branch_labels = None
depends_on = None

KEYS = (
    ("entry_rows", "entry_session", "session_id", "sessions (id)"),
    ("events", "event_session", "session_id", "sessions (id)"),
    ("turns", "turn_session", "session_id", "sessions (id)"),
    ("turns", "turns_address_id_fkey", "address_id", "addresses (id)"),
    ("turn_entries", "turn_entry_entry", "session_id, seq", "entry_rows (session_id, seq)"),
    ("turn_entries", "turn_entry_turn", "session_id, turn_no", "turns (session_id, turn_no)"),
)
SUM = "input_tokens + cache_read_tokens + cache_write_tokens + output_tokens"
TOTALS = (
    "ALTER TABLE session_totals DROP CONSTRAINT totals_add_up",
    "DROP TRIGGER totals_add_up ON session_totals",
    """CREATE OR REPLACE FUNCTION totals_add_up() RETURNS trigger LANGUAGE plpgsql AS $$
       BEGIN
         UPDATE session_totals
            SET total_tokens = input_tokens + cache_read_tokens + cache_write_tokens + output_tokens
          WHERE session_id = NEW.session_id;
         RETURN NULL;
       END $$""",
    """CREATE TRIGGER totals_add_up AFTER INSERT OR UPDATE ON session_totals
       FOR EACH ROW WHEN (NEW.total_tokens <> NEW.input_tokens + NEW.cache_read_tokens
                                              + NEW.cache_write_tokens + NEW.output_tokens)
       EXECUTE FUNCTION totals_add_up()""",
)
"""A program of before leaves the total as it was: it is put right after that, for a trigger that comes
before a row is written locks it, which is a record of the log in each turn. `check_invariants` knows the
sum, too.
"""
TOTALS_BEFORE = (
    "DROP TRIGGER totals_add_up ON session_totals",
    """CREATE OR REPLACE FUNCTION totals_add_up() RETURNS trigger LANGUAGE plpgsql AS $$
       BEGIN
         NEW.total_tokens := NEW.input_tokens + NEW.cache_read_tokens + NEW.cache_write_tokens
                             + NEW.output_tokens;
         RETURN NEW;
       END $$""",
    """CREATE TRIGGER totals_add_up BEFORE INSERT OR UPDATE ON session_totals
       FOR EACH ROW EXECUTE FUNCTION totals_add_up()""",
    f"ALTER TABLE session_totals ADD CONSTRAINT totals_add_up CHECK (total_tokens = {SUM})",
)
_WHERE_ITS_OWNER_HAS_THEM = """DO $$ BEGIN
         EXECUTE format('ALTER FUNCTION make_months(integer) SET search_path = %I, pg_temp',
                        current_schema());
         EXECUTE format('ALTER FUNCTION drop_months(text, integer) SET search_path = %I, pg_temp',
                        current_schema());
       END $$"""
MONTHS = (
    """CREATE OR REPLACE FUNCTION make_months(ahead integer) RETURNS void
           LANGUAGE plpgsql SECURITY DEFINER AS $$
       DECLARE grown record; start date; month text; taken boolean; other regrole;
       BEGIN
         FOR grown IN VALUES ('usage', 'at', 'usage'),
                             ('turn_context_audit', 'created_at', 'audit_rows') LOOP
           FOR step IN 0..least(ahead, 12) LOOP
             start := (date_trunc('month', now() AT TIME ZONE 'UTC') + make_interval(months => step))::date;
             month := grown.column1 || to_char(start, '_YYYY_MM');
             CONTINUE WHEN to_regclass(month) IS NOT NULL;
             EXECUTE format('SELECT EXISTS (SELECT FROM %I WHERE %I >= $1 AND %2$I < $2)',
                            grown.column1 || '_other', grown.column2)
                INTO taken USING start, start + interval '1 month';
             IF NOT taken THEN
               EXECUTE format('CREATE TABLE %I PARTITION OF %I FOR VALUES FROM (%L) TO (%L)',
                              month, grown.column3, start || ' 00:00+00',
                              (start + interval '1 month')::date || ' 00:00+00');
               -- An empty range counts as summed up: each of its first rows would change that sum.
               PERFORM brin_desummarize_range(i.indexrelid, 0)
                  FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam
                 WHERE i.indrelid = month::regclass AND a.amname = 'brin';
               -- Whoever may write does it by the table, which says who may change what.
               FOR other IN SELECT DISTINCT a.grantee::regrole FROM pg_class c, aclexplode(c.relacl) a
                             WHERE c.oid = month::regclass AND a.grantee NOT IN (0, c.relowner) LOOP
                 EXECUTE format('REVOKE INSERT, UPDATE, DELETE ON %I FROM %s', month, other);
               END LOOP;
             END IF;
           END LOOP;
         END LOOP;
       END $$""",
    r"""CREATE OR REPLACE FUNCTION drop_months(grown text, months integer) RETURNS bigint
           LANGUAGE plpgsql SECURITY DEFINER AS $$
       DECLARE old text; dropped bigint := 0;
       BEGIN
         IF grown NOT IN ('usage', 'turn_context_audit') OR months < 6 THEN
           RAISE EXCEPTION 'these months stay' USING ERRCODE = 'integrity_constraint_violation';
         END IF;
         FOR old IN SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
                     WHERE i.inhparent IN ('usage'::regclass, 'audit_rows'::regclass)
                       AND c.relname ~ ('^' || grown || '_\d{4}_\d{2}$')
                       AND to_date(right(c.relname, 7), 'YYYY_MM') + interval '1 month'
                           <= date_trunc('month', now() AT TIME ZONE 'UTC') - make_interval(months => months)
         LOOP
           EXECUTE format('DROP TABLE %I', old);
           dropped := dropped + 1;
         END LOOP;
         RETURN dropped;
       END $$""",
    _WHERE_ITS_OWNER_HAS_THEM,
)
MONTHS_BEFORE = (
    """CREATE OR REPLACE FUNCTION make_months(ahead integer) RETURNS void
           LANGUAGE plpgsql SECURITY DEFINER AS $$
       DECLARE grown record; start date; month text; taken boolean; other regrole;
       BEGIN
         FOR grown IN VALUES ('usage', 'at'), ('turn_context_audit', 'created_at') LOOP
           FOR step IN 0..least(ahead, 12) LOOP
             start := (date_trunc('month', now() AT TIME ZONE 'UTC') + make_interval(months => step))::date;
             month := grown.column1 || to_char(start, '_YYYY_MM');
             CONTINUE WHEN to_regclass(month) IS NOT NULL;
             EXECUTE format('SELECT EXISTS (SELECT FROM %I WHERE %I >= $1 AND %2$I < $2)',
                            grown.column1 || '_other', grown.column2)
                INTO taken USING start, start + interval '1 month';
             IF NOT taken THEN
               EXECUTE format('CREATE TABLE %I PARTITION OF %I FOR VALUES FROM (%L) TO (%L)',
                              month, grown.column1, start || ' 00:00+00',
                              (start + interval '1 month')::date || ' 00:00+00');
               -- Whoever may write does it by the table, which says who may change what.
               FOR other IN SELECT DISTINCT a.grantee::regrole FROM pg_class c, aclexplode(c.relacl) a
                             WHERE c.oid = month::regclass AND a.grantee NOT IN (0, c.relowner) LOOP
                 EXECUTE format('REVOKE INSERT, UPDATE, DELETE ON %I FROM %s', month, other);
               END LOOP;
             END IF;
           END LOOP;
         END LOOP;
       END $$""",
    r"""CREATE OR REPLACE FUNCTION drop_months(grown text, months integer) RETURNS bigint
           LANGUAGE plpgsql SECURITY DEFINER AS $$
       DECLARE old text; dropped bigint := 0;
       BEGIN
         IF grown NOT IN ('usage', 'turn_context_audit') OR months < 6 THEN
           RAISE EXCEPTION 'these months stay' USING ERRCODE = 'integrity_constraint_violation';
         END IF;
         FOR old IN SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
                     WHERE i.inhparent = to_regclass(grown) AND c.relname ~ ('^' || grown || '_\d{4}_\d{2}$')
                       AND to_date(right(c.relname, 7), 'YYYY_MM') + interval '1 month'
                           <= date_trunc('month', now() AT TIME ZONE 'UTC') - make_interval(months => months)
         LOOP
           EXECUTE format('DROP TABLE %I', old);
           dropped := dropped + 1;
         END LOOP;
         RETURN dropped;
       END $$""",
    _WHERE_ITS_OWNER_HAS_THEM,
)
SHORT = {"parts": "'{}'", "part_hashes": "'[]'", "prune_seqs": "'[]'", "recipe": "'{}'"}
"""Columns that are null where a row says the same in others, with what they were without a word."""
ADDED = {
    "hashes": "BYTEA", "plan": "TEXT", "system_tokens": "INTEGER", "memory_tokens": "INTEGER",
    "summary_tokens": "INTEGER", "history_tokens": "INTEGER", "tools_tokens": "INTEGER",
}  # fmt: skip
AUDITS = (
    """CREATE FUNCTION part_keys(bytea) RETURNS jsonb LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
         SELECT jsonb_agg(encode(substr($1, 32 * n + 1, 32), 'hex') ORDER BY n)
           FROM generate_series(0, length($1) / 32 - 1) AS n $$""",
    """CREATE VIEW turn_context_audit AS
       SELECT id, created_at, session_id, turn_id, model_alias, model_context_limit, input_budget,
              hard_limit,
              estimated_input_tokens_before, estimated_input_tokens_after_summary,
              estimated_input_tokens_after_prune, reported_input_tokens, context_tokens, summary_triggered,
              prune_triggered, overflow_rejected,
              coalesce(parts, jsonb_strip_nulls(jsonb_build_object('system', system_tokens, 'memory',
                memory_tokens, 'summary', summary_tokens, 'history', history_tokens, 'tools', tools_tokens)))
                AS parts,
              coalesce(part_hashes, part_keys(hashes), '[]'::jsonb) AS part_hashes,
              entry_from, entry_through, base_turn, head, coalesce(prune_seqs, '[]'::jsonb) AS prune_seqs,
              renderer_version,
              coalesce(recipe, jsonb_build_object('open', turn_id, 'system', 1, 'tools', true, 'seqs',
                jsonb_build_array(jsonb_build_array(entry_from, entry_through))) || plan::jsonb, '{}'::jsonb)
                AS recipe,
              model_ms
         FROM audit_rows""",
    """ALTER VIEW turn_context_audit ALTER COLUMN id SET DEFAULT nextval('audit_rows_id_seq'),
         ALTER COLUMN created_at SET DEFAULT now(), ALTER COLUMN summary_triggered SET DEFAULT false,
         ALTER COLUMN prune_triggered SET DEFAULT false, ALTER COLUMN overflow_rejected SET DEFAULT false,
         ALTER COLUMN parts SET DEFAULT '{}', ALTER COLUMN part_hashes SET DEFAULT '[]',
         ALTER COLUMN entry_from SET DEFAULT 0, ALTER COLUMN entry_through SET DEFAULT 0,
         ALTER COLUMN base_turn SET DEFAULT 0, ALTER COLUMN prune_seqs SET DEFAULT '[]',
         ALTER COLUMN renderer_version SET DEFAULT 1, ALTER COLUMN recipe SET DEFAULT '{}'""",
    """CREATE FUNCTION audits_are_rows() RETURNS trigger LANGUAGE plpgsql AS $$
       BEGIN
         IF TG_OP = 'DELETE' THEN
           DELETE FROM audit_rows WHERE id = OLD.id AND created_at = OLD.created_at;
           RETURN OLD;
         END IF;
         IF TG_OP = 'UPDATE' THEN
           UPDATE audit_rows
              SET created_at = NEW.created_at, session_id = NEW.session_id, turn_id = NEW.turn_id,
                  model_alias = NEW.model_alias, model_context_limit = NEW.model_context_limit,
                  input_budget = NEW.input_budget, hard_limit = NEW.hard_limit,
                  estimated_input_tokens_before = NEW.estimated_input_tokens_before,
                  estimated_input_tokens_after_summary = NEW.estimated_input_tokens_after_summary,
                  estimated_input_tokens_after_prune = NEW.estimated_input_tokens_after_prune,
                  reported_input_tokens = NEW.reported_input_tokens, context_tokens = NEW.context_tokens,
                  summary_triggered = NEW.summary_triggered, prune_triggered = NEW.prune_triggered,
                  overflow_rejected = NEW.overflow_rejected, parts = NEW.parts,
                  part_hashes = NEW.part_hashes, entry_from = NEW.entry_from,
                  entry_through = NEW.entry_through, base_turn = NEW.base_turn, head = NEW.head,
                  prune_seqs = NEW.prune_seqs, renderer_version = NEW.renderer_version, recipe = NEW.recipe,
                  model_ms = NEW.model_ms, hashes = NULL, plan = NULL
            WHERE id = OLD.id AND created_at = OLD.created_at;
           RETURN NEW;
         END IF;
         INSERT INTO audit_rows (
           id, created_at, session_id, turn_id, model_alias, model_context_limit, input_budget, hard_limit,
           estimated_input_tokens_before, estimated_input_tokens_after_summary,
           estimated_input_tokens_after_prune, reported_input_tokens, context_tokens, summary_triggered,
           prune_triggered, overflow_rejected, parts, part_hashes, entry_from, entry_through, base_turn, head,
           prune_seqs, renderer_version, recipe, model_ms)
         VALUES (
           NEW.id, NEW.created_at, NEW.session_id, NEW.turn_id, NEW.model_alias, NEW.model_context_limit,
           NEW.input_budget, NEW.hard_limit, NEW.estimated_input_tokens_before,
           NEW.estimated_input_tokens_after_summary, NEW.estimated_input_tokens_after_prune,
           NEW.reported_input_tokens, NEW.context_tokens, NEW.summary_triggered, NEW.prune_triggered,
           NEW.overflow_rejected, NEW.parts, NEW.part_hashes, NEW.entry_from, NEW.entry_through,
           NEW.base_turn, NEW.head, NEW.prune_seqs, NEW.renderer_version, NEW.recipe, NEW.model_ms);
         RETURN NEW;
       END $$""",
    """CREATE TRIGGER audits_are_rows INSTEAD OF INSERT OR UPDATE OR DELETE ON turn_context_audit
       FOR EACH ROW EXECUTE FUNCTION audits_are_rows()""",
)


def upgrade() -> None:
    _wait_for("turn_context_audit")
    for table, name, _, _ in KEYS:
        op.execute(f"ALTER TABLE {table} DROP CONSTRAINT {name}")
    for statement in TOTALS:
        op.execute(statement)
    # What one model call of a turn was given, and what was done to make it fit; partitioned by month.
    # Whoever is in no hurry reads and writes the view `turn_context_audit`. A row is in its long form, as the
    # view has it, or in the short one of an answer: then the four columns that are JSON are null. Of the new
    # columns, `hashes` are the keys of the prompt's parts, 32 bytes each, one behind the other; `plan` is
    # JSON: of the recipe what does not follow from other columns, null after forgetting.
    op.execute("ALTER TABLE turn_context_audit RENAME TO audit_rows")
    _call("turn_context_audit", "audit_rows")
    for column in SHORT:
        op.execute(
            f"ALTER TABLE audit_rows ALTER COLUMN {column} DROP NOT NULL, ALTER COLUMN {column} DROP DEFAULT"
        )
    for column, kind in ADDED.items():
        op.execute(f"ALTER TABLE audit_rows ADD COLUMN {column} {kind}")
    for statement in (*AUDITS, *MONTHS):
        op.execute(statement)


def downgrade() -> None:
    _wait_for("audit_rows")
    for statement in TOTALS_BEFORE:
        op.execute(statement)
    for table, name, columns, place in KEYS:
        key = f"FOREIGN KEY ({columns}) REFERENCES {place}"
        op.execute(f"ALTER TABLE {table} ADD CONSTRAINT {name} {key}")
    long = ", ".join(SHORT)
    op.execute(
        f"""UPDATE audit_rows r SET ({long}) = ROW({", ".join(f"a.{column}" for column in SHORT)})
              FROM turn_context_audit a
             WHERE a.id = r.id AND a.created_at = r.created_at AND num_nulls(r.{", r.".join(SHORT)}) > 0"""
    )
    op.execute("DROP VIEW turn_context_audit")
    op.execute("DROP FUNCTION audits_are_rows()")
    op.execute("DROP FUNCTION part_keys(bytea)")
    for column in ADDED:
        op.execute(f"ALTER TABLE audit_rows DROP COLUMN {column}")
    for column, empty in SHORT.items():
        op.execute(f"ALTER TABLE audit_rows ALTER COLUMN {column} SET DEFAULT {empty}::jsonb")
        op.execute(f"ALTER TABLE audit_rows ALTER COLUMN {column} SET NOT NULL")
    op.execute("ALTER TABLE audit_rows RENAME TO turn_context_audit")
    _call("audit_rows", "turn_context_audit")
    for statement in MONTHS_BEFORE:
        op.execute(statement)


def _wait_for(audits: str) -> None:
    """All that is changed, before any of it is: whoever is at work ends first."""
    tables = f"sessions, addresses, turns, entry_rows, turn_entries, events, session_totals, {audits}"
    op.execute(f"LOCK TABLE {tables} IN ACCESS EXCLUSIVE MODE")


def _call(before: str, after: str) -> None:
    """What is named after its table follows it; from 18 on PostgreSQL names what must not be null, too."""
    op.execute(f"ALTER INDEX {before}_pkey RENAME TO {after}_pkey")
    op.execute(f"ALTER SEQUENCE {before}_id_seq RENAME TO {after}_id_seq")
    op.execute(
        f"""DO $$ DECLARE old text; named text; BEGIN
              FOR old, named IN
                SELECT c.conname, '{after}_' || left(a.attname, 53 - {len(after)}) || '_not_null'
                  FROM pg_constraint c
                  JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = c.conkey[1]
                 WHERE c.conrelid = '{after}'::regclass AND c.contype = 'n'
                   AND starts_with(c.conname, '{before}_') LOOP
                EXECUTE format('ALTER TABLE {after} RENAME CONSTRAINT %I TO %I', old, named);
              END LOOP;
            END $$"""
    )
