"""Kinds of alerts that the database accepts: each migration adds its own to one constraint."""

from __future__ import annotations

from collections.abc import Sequence

from alembic import op


def allow_alert_kind(kind: str) -> None:
    """Accept alerts of one more kind."""
    _replace_kinds([*_list_kinds(), kind])


def forbid_alert_kind(kind: str) -> None:
    """Delete alerts of a kind with what was sent of them, and accept no more."""
    op.execute(
        f"""DELETE FROM alert_sends USING alerts
             WHERE alerts.id = alert_sends.alert_id AND alerts.kind = '{kind}'"""
    )
    op.execute(f"DELETE FROM alerts WHERE kind = '{kind}'")
    _replace_kinds([other for other in _list_kinds() if other != kind])


def _list_kinds() -> list[str]:
    """Return the kinds that the constraint accepts now."""
    found = op.get_bind().exec_driver_sql(
        """SELECT (regexp_matches(pg_get_constraintdef(oid), '''([a-z_0-9]+)''', 'g'))[1]
             FROM pg_constraint WHERE conname = 'alert_kind'"""
    )
    return [str(row[0]) for row in found]


def _replace_kinds(kinds: Sequence[str]) -> None:
    listed = "', '".join(kinds)
    op.execute(
        f"""ALTER TABLE alerts DROP CONSTRAINT alert_kind,
              ADD CONSTRAINT alert_kind CHECK (kind IN ('{listed}'))"""
    )
