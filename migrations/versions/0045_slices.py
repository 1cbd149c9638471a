"""Processes lease slices of the day's money, so that no row is written by every turn."""

from __future__ import annotations

from alembic import op

revision = "0045"
down_revision = "0044"
branch_labels = None
depends_on = None

SLICES = """CREATE TABLE spend_slices (
             -- Money of the day that one process spends by itself; what is left goes back when it is
             -- closed.
    id BIGSERIAL NOT NULL,
    worker_id BIGINT NOT NULL,
    day DATE NOT NULL,
    scopes TEXT[] NOT NULL,
    granted_micro BIGINT NOT NULL,
    spent_micro BIGINT,
    after_reservation BIGINT NOT NULL,
    taken_at TIMESTAMPTZ DEFAULT now() NOT NULL,
    closed_at TIMESTAMPTZ,
    PRIMARY KEY (id),
    CONSTRAINT slice_is_of_something CHECK (granted_micro > 0 AND cardinality(scopes) > 0),
    CONSTRAINT slice_is_counted_at_its_end CHECK ((closed_at IS NULL) = (spent_micro IS NULL)))"""


def upgrade() -> None:
    # Stands for the scopes that all share: they learn of this when the slice is closed.
    op.execute("ALTER TABLE reservations ADD COLUMN slice_id BIGINT")
    op.execute(SLICES)
    op.execute("CREATE INDEX spend_slices_open ON spend_slices (id) WHERE closed_at IS NULL")


def downgrade() -> None:
    op.execute("DROP TABLE spend_slices")
    op.execute("ALTER TABLE reservations DROP COLUMN slice_id")
