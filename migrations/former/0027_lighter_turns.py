"""Lighter rows of a turn: no keys of nothing in the index of keys, a claim that changes its turn in place.

The index of keys is made anew while nobody writes: a message that comes meanwhile is not acknowledged and is
sent again.
"""

from __future__ import annotations

from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("LOCK TABLE sessions, entries, turns IN ACCESS EXCLUSIVE MODE")
    op.execute("ALTER TABLE entries DROP CONSTRAINT entry_is_stored_once")
    op.execute(
        "CREATE UNIQUE INDEX entry_is_stored_once ON entries (session_id, dedupe_key) "
        "WHERE dedupe_key IS NOT NULL"
    )
    _failed_by("error_code IS NOT NULL")
    op.execute("ALTER TABLE turns SET (fillfactor = 85)")


def downgrade() -> None:
    op.execute("LOCK TABLE sessions, entries, turns IN ACCESS EXCLUSIVE MODE")
    op.execute("ALTER TABLE turns RESET (fillfactor)")
    _failed_by("state = 'failed'")
    op.execute("DROP INDEX entry_is_stored_once")
    op.execute("ALTER TABLE entries ADD CONSTRAINT entry_is_stored_once UNIQUE (session_id, dedupe_key)")


def _failed_by(mark: str) -> None:
    """A claim changes a turn's state and nothing that an index looks at: then no index has to hear of it."""
    op.execute("DROP INDEX turns_failed")
    op.execute(f"CREATE INDEX turns_failed ON turns (session_id, turn_no) WHERE {mark}")
