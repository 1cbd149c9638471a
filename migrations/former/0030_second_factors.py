"""Operators may have a second factor; a person may be put on hold, so that nothing of them goes."""

from __future__ import annotations

from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None

STATEMENTS = (
    """CREATE TABLE operator_factors (
        operator_id BIGINT NOT NULL,
        key_id TEXT NOT NULL,
        sealed BYTEA NOT NULL,
        last_step BIGINT DEFAULT 0 NOT NULL,
        recovery BYTEA[] DEFAULT '{}' NOT NULL,
        created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
        confirmed_at TIMESTAMP WITH TIME ZONE,
        PRIMARY KEY (operator_id),
        CONSTRAINT factor_opens_when_confirmed CHECK (confirmed_at IS NOT NULL OR recovery = '{}'),
        FOREIGN KEY(operator_id) REFERENCES operators (id)
    )""",
    """CREATE TABLE operator_steps (
        token_hash BYTEA NOT NULL,
        operator_id BIGINT NOT NULL,
        how TEXT NOT NULL,
        created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
        expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
        PRIMARY KEY (token_hash),
        CONSTRAINT operator_step_how CHECK (how IN ('link', 'password')),
        FOREIGN KEY(operator_id) REFERENCES operators (id)
    )""",
    "CREATE INDEX operator_steps_of_operator ON operator_steps (operator_id)",
    "ALTER TABLE parties ADD COLUMN on_hold_since TIMESTAMP WITH TIME ZONE",
    "ALTER TABLE parties ADD COLUMN on_hold_by TEXT",
    """ALTER TABLE parties ADD CONSTRAINT hold_says_whose
       CHECK ((on_hold_since IS NULL) = (on_hold_by IS NULL))""",
    "CREATE INDEX parties_on_hold ON parties (id) WHERE on_hold_since IS NOT NULL",
    """CREATE FUNCTION held_parties() RETURNS SETOF bigint LANGUAGE sql STABLE ROWS 5 AS $$
         SELECT f FROM parties h CROSS JOIN LATERAL party_family(coalesce(h.merged_into, h.id)) AS f
          WHERE h.on_hold_since IS NOT NULL $$""",
    """CREATE FUNCTION held_sessions() RETURNS SETOF bigint LANGUAGE sql STABLE ROWS 5 AS $$
         SELECT id FROM sessions WHERE party_id IN (SELECT held_parties()) $$""",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    op.execute("DROP FUNCTION held_sessions()")
    op.execute("DROP FUNCTION held_parties()")
    op.execute("DROP INDEX parties_on_hold")
    op.execute("ALTER TABLE parties DROP COLUMN on_hold_by, DROP COLUMN on_hold_since")
    op.execute("DROP TABLE operator_steps")
    op.execute("DROP TABLE operator_factors")
