"""The log of erasures says by ids what it was about, for restored backups; operators hear of none made."""

from __future__ import annotations

from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

_KINDS = (
    "'spend_80', 'spend_100', 'provider_refused', 'breaker_open', 'dead_job', 'uncertain_delivery', "
    "'disk_low', 'handover_waiting', 'no_worker'"
)


def upgrade() -> None:
    op.execute("ALTER TABLE alerts DROP CONSTRAINT alert_kind")
    op.execute(
        f"ALTER TABLE alerts ADD CONSTRAINT alert_kind CHECK (kind IN ({_KINDS}, 'no_backup', 'test'))"
    )
    op.execute("ALTER TABLE erasures ADD COLUMN about JSONB")
    op.execute(
        "ALTER TABLE erasures ADD CONSTRAINT erasure_is_about_ids "
        "CHECK (about IS NULL OR jsonb_typeof(about) = 'object')"
    )
    op.execute("ALTER TABLE erasures DROP CONSTRAINT erasure_scope")
    op.execute(
        "ALTER TABLE erasures ADD CONSTRAINT erasure_scope "
        "CHECK (scope IN ('everything', 'messages', 'retention', 'notes'))"
    )


def downgrade() -> None:
    op.execute("DELETE FROM alert_sends WHERE alert_id IN (SELECT id FROM alerts WHERE kind = 'no_backup')")
    op.execute("DELETE FROM alerts WHERE kind = 'no_backup'")
    op.execute("ALTER TABLE alerts DROP CONSTRAINT alert_kind")
    op.execute(f"ALTER TABLE alerts ADD CONSTRAINT alert_kind CHECK (kind IN ({_KINDS}, 'test'))")
    op.execute("DELETE FROM erasures WHERE scope = 'notes'")
    op.execute("ALTER TABLE erasures DROP CONSTRAINT erasure_scope")
    op.execute(
        "ALTER TABLE erasures ADD CONSTRAINT erasure_scope "
        "CHECK (scope IN ('everything', 'messages', 'retention'))"
    )
    op.execute("ALTER TABLE erasures DROP CONSTRAINT erasure_is_about_ids")
    op.execute("ALTER TABLE erasures DROP COLUMN about")
