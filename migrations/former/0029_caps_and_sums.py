"""Alerts of an agent's own caps, who came near a cap today, and calls of tools by their time."""

from __future__ import annotations

from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None

_KINDS = (
    "'spend_80', 'spend_100', 'provider_refused', 'breaker_open', 'dead_job', 'uncertain_delivery', "
    "'disk_low', 'handover_waiting', 'no_worker', 'no_backup'"
)


def upgrade() -> None:
    op.execute("ALTER TABLE alerts DROP CONSTRAINT alert_kind")
    op.execute(
        "ALTER TABLE alerts ADD CONSTRAINT alert_kind "
        f"CHECK (kind IN ({_KINDS}, 'agent_cap_80', 'agent_cap_100', 'test'))"
    )
    op.execute("CREATE INDEX spend_days_near ON spend_days (day) WHERE warned_at IS NOT NULL")
    op.execute("CREATE INDEX steps_by_time ON turn_steps USING brin (at)")


def downgrade() -> None:
    op.execute("DROP INDEX steps_by_time")
    op.execute("DROP INDEX spend_days_near")
    op.execute(
        "DELETE FROM alert_sends WHERE alert_id IN "
        "(SELECT id FROM alerts WHERE kind IN ('agent_cap_80', 'agent_cap_100'))"
    )
    op.execute("DELETE FROM alerts WHERE kind IN ('agent_cap_80', 'agent_cap_100')")
    op.execute("ALTER TABLE alerts DROP CONSTRAINT alert_kind")
    op.execute(f"ALTER TABLE alerts ADD CONSTRAINT alert_kind CHECK (kind IN ({_KINDS}, 'test'))")
