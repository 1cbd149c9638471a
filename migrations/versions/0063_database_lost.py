"""Alerts of a database that took no writes, stored when it takes them again."""

from __future__ import annotations

from migrations.alert_kinds import allow_alert_kind, forbid_alert_kind

revision = "0063"
down_revision = "0062"
branch_labels = None
depends_on = None

KIND = "database_lost"


def upgrade() -> None:
    allow_alert_kind(KIND)


def downgrade() -> None:
    forbid_alert_kind(KIND)
