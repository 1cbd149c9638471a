"""Alerts: what operators are told of, each message to each of them, and what processes see around them."""

from __future__ import annotations

from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

STATEMENTS = (
    "ALTER TABLE workers ADD COLUMN health JSONB DEFAULT '{}'::jsonb NOT NULL",
    """
    CREATE TABLE alerts (
        id BIGSERIAL NOT NULL,
        public_id UUID DEFAULT gen_random_uuid() NOT NULL,
        kind TEXT NOT NULL,
        key TEXT DEFAULT '' NOT NULL,
        detail JSONB DEFAULT '{}'::jsonb NOT NULL,
        opened_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
        true_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
        ended_at TIMESTAMP WITH TIME ZONE,
        seen_at TIMESTAMP WITH TIME ZONE,
        seen_by TEXT DEFAULT '' NOT NULL,
        PRIMARY KEY (id),
        CONSTRAINT alert_kind CHECK (kind IN ('spend_80', 'spend_100', 'provider_refused', 'breaker_open',
            'dead_job', 'uncertain_delivery', 'disk_low', 'handover_waiting', 'no_worker', 'test')),
        CONSTRAINT alert_detail_is_an_object CHECK (jsonb_typeof(detail) = 'object'),
        CONSTRAINT alert_ends_after_it_began CHECK (ended_at >= opened_at),
        UNIQUE (public_id)
    )
    """,
    "CREATE UNIQUE INDEX alert_is_open_once ON alerts (kind, key) WHERE ended_at IS NULL",
    "CREATE INDEX alerts_by_time ON alerts (opened_at, id)",
    """
    CREATE TABLE alert_sends (
        id BIGSERIAL NOT NULL,
        alert_id BIGINT NOT NULL,
        target TEXT NOT NULL,
        phase TEXT NOT NULL,
        send_key UUID DEFAULT gen_random_uuid() NOT NULL,
        state TEXT DEFAULT 'due' NOT NULL,
        attempt INTEGER DEFAULT 0 NOT NULL,
        error TEXT DEFAULT '' NOT NULL,
        sent_by BIGINT,
        due_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
        created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
        ended_at TIMESTAMP WITH TIME ZONE,
        PRIMARY KEY (id),
        CONSTRAINT alert_is_sent_once UNIQUE (alert_id, target, phase),
        CONSTRAINT alert_send_state CHECK (state IN ('due', 'sending', 'sent', 'failed', 'uncertain')),
        CONSTRAINT alert_send_phase CHECK (phase IN ('opened', 'ended')),
        CONSTRAINT alert_send_target CHECK (target IN ('webhook', 'email') OR target LIKE 'telegram:%'),
        CONSTRAINT alert_send_ends CHECK ((ended_at IS NULL) = (state IN ('due', 'sending'))),
        CONSTRAINT alert_send_has_a_sender CHECK ((state = 'sending') = (sent_by IS NOT NULL)),
        CONSTRAINT alert_send_alert FOREIGN KEY(alert_id) REFERENCES alerts (id) ON DELETE CASCADE
    )
    """,
    "CREATE INDEX alert_sends_waiting ON alert_sends (due_at) WHERE state IN ('due', 'sending')",
    "CREATE INDEX alert_sends_by_target ON alert_sends (target, id)",
)
BACK = ("DROP TABLE alert_sends", "DROP TABLE alerts", "ALTER TABLE workers DROP COLUMN health")


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    for statement in BACK:
        op.execute(statement)
