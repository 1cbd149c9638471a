"""Anonymous visitors are capped by network and by hour; a source that takes a third of a day is an alert."""

from __future__ import annotations

from alembic import op

revision = "0044"
down_revision = "0043"
branch_labels = None
depends_on = None

_KNOWN = """
DO $$
DECLARE known text;
BEGIN
  SELECT string_agg(quote_literal(kind[1]), ', ') INTO known
    FROM pg_constraint c, regexp_matches(pg_get_constraintdef(c.oid), '''([a-z0-9_]+)''', 'g') AS kind
   WHERE c.conname = 'alert_kind' AND kind[1] <> 'spend_source';
  ALTER TABLE alerts DROP CONSTRAINT alert_kind;
  EXECUTE 'ALTER TABLE alerts ADD CONSTRAINT alert_kind CHECK (kind IN (' || known || {more} || '))';
END $$
"""
"""Whatever kinds there are, with one more behind them, or without it."""


def _refusals_of(scopes: str, codes: str) -> None:
    op.execute("ALTER TABLE turns DROP CONSTRAINT turn_scope_refused")
    op.execute(
        f"""ALTER TABLE turns ADD CONSTRAINT turn_scope_refused CHECK (
             refused_scope IS NULL OR refused_scope IN ({scopes})
             AND state IN ('refused', 'answered') AND error_code IS NOT NULL AND {codes})"""
    )


def upgrade() -> None:
    op.execute(
        """ALTER TABLE parties ADD COLUMN network TEXT, ADD COLUMN network_at TIMESTAMPTZ,
             ADD CONSTRAINT network_is_a_hash
               CHECK (network IS NULL OR network ~ '^[0-9a-f]{32}$' AND network_at IS NOT NULL)"""
    )
    op.execute("CREATE INDEX parties_seen_somewhere ON parties (network_at) WHERE network IS NOT NULL")
    op.execute("CREATE INDEX spend_days_by_day ON spend_days (day)")
    _refusals_of(
        "'party', 'session', 'network', 'visitors', 'total'",
        "error_code IN ('cap_reached', 'hour_cap_reached')",
    )
    op.execute(_KNOWN.format(more="', ''spend_source'''"))


def downgrade() -> None:
    op.execute(
        "DELETE FROM alert_sends WHERE alert_id IN (SELECT id FROM alerts WHERE kind = 'spend_source')"
    )
    op.execute("DELETE FROM alerts WHERE kind = 'spend_source'")
    op.execute(_KNOWN.format(more="''"))
    op.execute("UPDATE turns SET refused_scope = NULL WHERE refused_scope IN ('network', 'visitors')")
    op.execute("UPDATE turns SET refused_scope = NULL WHERE error_code = 'hour_cap_reached'")
    _refusals_of("'party', 'session', 'total'", "error_code = 'cap_reached'")
    op.execute("DROP INDEX spend_days_by_day")
    op.execute("ALTER TABLE parties DROP COLUMN network, DROP COLUMN network_at")
