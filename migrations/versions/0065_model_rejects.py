"""Alerts of a model that refuses requests, or whose answers cannot be used."""

from __future__ import annotations

from alembic import op

revision = "0065"
down_revision = "0064"
branch_labels = None
depends_on = None

KIND = "model_rejects"


def upgrade() -> None:
    _replace("', '".join([*_list_kinds(), KIND]))


def downgrade() -> None:
    op.execute(
        f"""DELETE FROM alert_sends USING alerts
             WHERE alerts.id = alert_sends.alert_id AND alerts.kind = '{KIND}'"""
    )
    op.execute(f"DELETE FROM alerts WHERE kind = '{KIND}'")
    _replace("', '".join(kind for kind in _list_kinds() if kind != KIND))


def _list_kinds() -> list[str]:
    """Return the kinds that the constraint allows now; other versions add theirs to the same one."""
    found = op.get_bind().exec_driver_sql(
        """SELECT (regexp_matches(pg_get_constraintdef(oid), '''([a-z_0-9]+)''', 'g'))[1]
             FROM pg_constraint WHERE conname = 'alert_kind'"""
    )
    return [str(row[0]) for row in found]


def _replace(kinds: str) -> None:
    op.execute(
        f"""ALTER TABLE alerts DROP CONSTRAINT alert_kind,
              ADD CONSTRAINT alert_kind CHECK (kind IN ('{kinds}'))"""
    )
