"""What was written down of operators and of erasures stays as it is; months are made and dropped by name."""

from __future__ import annotations

from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None

STATEMENTS = (
    """CREATE FUNCTION audit_is_only_added() RETURNS trigger LANGUAGE plpgsql AS $$
       BEGIN
         RAISE EXCEPTION 'the audit is only ever added to' USING ERRCODE = 'integrity_constraint_violation';
       END $$""",
    """CREATE TRIGGER audit_is_only_added BEFORE UPDATE OR DELETE OR TRUNCATE ON audit
       FOR EACH STATEMENT EXECUTE FUNCTION audit_is_only_added()""",
    "ALTER TABLE audit ENABLE ALWAYS TRIGGER audit_is_only_added",
    """CREATE FUNCTION erasures_stay_on_record() RETURNS trigger LANGUAGE plpgsql AS $$
       BEGIN
         IF TG_OP = 'UPDATE' AND OLD.state = 'running'
            AND (NEW.at, NEW.party_hash, NEW.actor, NEW.scope)
              = (OLD.at, OLD.party_hash, OLD.actor, OLD.scope)
            AND NEW.about IS NOT DISTINCT FROM OLD.about THEN
           RETURN NEW;
         END IF;
         IF TG_OP = 'DELETE' AND OLD.state = 'done' AND OLD.at < now() - interval '1095 days' THEN
           RETURN OLD;
         END IF;
         RAISE EXCEPTION 'an erasure stays on record' USING ERRCODE = 'integrity_constraint_violation';
       END $$""",
    """CREATE TRIGGER erasures_stay_on_record BEFORE UPDATE OR DELETE ON erasures
       FOR EACH ROW EXECUTE FUNCTION erasures_stay_on_record()""",
    """CREATE TRIGGER erasures_are_not_emptied BEFORE TRUNCATE ON erasures
       FOR EACH STATEMENT EXECUTE FUNCTION erasures_stay_on_record()""",
    "ALTER TABLE erasures ENABLE ALWAYS TRIGGER erasures_stay_on_record",
    "ALTER TABLE erasures ENABLE ALWAYS TRIGGER erasures_are_not_emptied",
    """CREATE FUNCTION make_months(ahead integer) RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$
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
    r"""CREATE FUNCTION drop_months(grown text, months integer) RETURNS bigint
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
    # A function that has its owner's rights looks for tables nowhere but where its owner has them.
    """DO $$ BEGIN
         EXECUTE format('ALTER FUNCTION make_months(integer) SET search_path = %I, pg_temp',
                        current_schema());
         EXECUTE format('ALTER FUNCTION drop_months(text, integer) SET search_path = %I, pg_temp',
                        current_schema());
       END $$""",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    op.execute("DROP FUNCTION drop_months(text, integer)")
    op.execute("DROP FUNCTION make_months(integer)")
    op.execute("DROP TRIGGER erasures_are_not_emptied ON erasures")
    op.execute("DROP TRIGGER erasures_stay_on_record ON erasures")
    op.execute("DROP FUNCTION erasures_stay_on_record()")
    op.execute("DROP TRIGGER audit_is_only_added ON audit")
    op.execute("DROP FUNCTION audit_is_only_added()")
