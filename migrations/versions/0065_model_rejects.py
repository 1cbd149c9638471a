"""Alerts of a model that refuses requests, or whose answers cannot be used."""

from __future__ import annotations

from migrations.alert_kinds import allow_alert_kind, forbid_alert_kind

revision = "0065"
down_revision = "0064"
branch_labels = None
depends_on = None

KIND = "model_rejects"


def upgrade() -> None:
    allow_alert_kind(KIND)


def downgrade() -> None:
    forbid_alert_kind(KIND)
