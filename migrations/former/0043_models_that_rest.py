"""Digests in a row are an alert: no model can summarise."""

from __future__ import annotations

from alembic import op

revision = "0043"
down_revision = "0042"
branch_labels = None
depends_on = None

_KINDS = ("no_summaries",)
_KNOWN = """
DO $$
DECLARE known text;
BEGIN
  SELECT string_agg(quote_literal(kind[1]), ', ') INTO known
    FROM pg_constraint c, regexp_matches(pg_get_constraintdef(c.oid), '''([a-z0-9_]+)''', 'g') AS kind
   WHERE c.conname = 'alert_kind' AND kind[1] <> ALL ('{{{gone}}}'::text[]);
  ALTER TABLE alerts DROP CONSTRAINT alert_kind;
  EXECUTE 'ALTER TABLE alerts ADD CONSTRAINT alert_kind CHECK (kind IN (' || known || {more} || '))';
END $$
"""
"""Whatever kinds there are, with some more behind them, or without some."""


def upgrade() -> None:
    op.execute("CREATE INDEX links_written ON links (id) WHERE kind IN ('summary', 'digest')")
    more = "".join(f", ''{kind}''" for kind in _KINDS)
    op.execute(_KNOWN.format(gone="", more=f"'{more}'"))


def downgrade() -> None:
    kinds = ", ".join(f"'{kind}'" for kind in _KINDS)
    op.execute(f"DELETE FROM alert_sends WHERE alert_id IN (SELECT id FROM alerts WHERE kind IN ({kinds}))")
    op.execute(f"DELETE FROM alerts WHERE kind IN ({kinds})")
    op.execute(_KNOWN.format(gone=",".join(_KINDS), more="''"))
    op.execute("DROP INDEX links_written")
