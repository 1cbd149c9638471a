"""A lease knows when it began, the deployment on which timeline it writes; a stuck turn is an alert."""

from __future__ import annotations

from alembic import op
from sqlalchemy import text

revision = "0040"
down_revision = "0039"
branch_labels = None
depends_on = None

NOTE = (
    """CREATE FUNCTION note_timeline() RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER AS $$
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
       END $$""",
    """DO $$ BEGIN
         EXECUTE format('ALTER FUNCTION note_timeline() SET search_path = %I, pg_temp', current_schema());
       END $$""",
)
_PRESENT = text(
    """SELECT array_to_string(ARRAY(SELECT m[1] FROM regexp_matches(
         (SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'alert_kind'),
         '''([a-z_0-9]+)''', 'g') AS m), ' ')"""
)


def _allow(kinds: list[str]) -> None:
    listed = ", ".join(f"'{kind}'" for kind in kinds)
    op.execute("ALTER TABLE alerts DROP CONSTRAINT alert_kind")
    op.execute(f"ALTER TABLE alerts ADD CONSTRAINT alert_kind CHECK (kind IN ({listed}))")


def _kinds() -> list[str]:
    return [
        kind for kind in str(op.get_bind().scalar(_PRESENT)).split() if kind not in ("test", "stuck_turn")
    ]


def upgrade() -> None:
    op.execute("ALTER TABLE sessions ADD COLUMN leased_at TIMESTAMPTZ")
    op.execute("ALTER TABLE deployment ADD COLUMN timeline TEXT NOT NULL DEFAULT ''")
    for statement in NOTE:
        op.execute(statement)
    _allow([*_kinds(), "stuck_turn", "test"])


def downgrade() -> None:
    op.execute("DELETE FROM alert_sends WHERE alert_id IN (SELECT id FROM alerts WHERE kind = 'stuck_turn')")
    op.execute("DELETE FROM alerts WHERE kind = 'stuck_turn'")
    _allow([*_kinds(), "test"])
    op.execute("DROP FUNCTION note_timeline()")
    op.execute("ALTER TABLE deployment DROP COLUMN timeline")
    op.execute("ALTER TABLE sessions DROP COLUMN leased_at")
