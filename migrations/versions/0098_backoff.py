"""Backoff: pauses of compaction, and what rows of jobs say, are called what everything else calls them."""

from __future__ import annotations

from alembic import op

from migrations.renames import rename, reverse

revision = "0098"
down_revision = "0097"
branch_labels = None
depends_on = None

NAMES = {"compaction_rest": "compaction_backoff"}
WAITING = "state IN ('due', 'running')"
RENAME_KEY = """
UPDATE jobs SET {column} = {column} - '{old}' || jsonb_build_object('{new}', {column} -> '{old}')
 WHERE {column} ? '{old}' AND {where}
"""
RENAME_REASON = """
UPDATE jobs SET outcome = jsonb_set(outcome, '{{deferred}}', '"{new}"') WHERE outcome ->> 'deferred' = '{old}'
"""


def upgrade() -> None:
    rename(NAMES)
    _rename_key("outcome", "resting", "deferred", where=WAITING)
    _rename_key("outcome", "resting", "in_backoff")
    _rename_key("outcome", "link", "compaction")
    _rename_key("payload", "link", "compaction")
    op.execute(RENAME_REASON.format(old="breaker", new="backoff"))


def downgrade() -> None:
    rename(reverse(NAMES))
    op.execute(RENAME_REASON.format(old="backoff", new="breaker"))
    _rename_key("payload", "compaction", "link")
    _rename_key("outcome", "compaction", "link")
    _rename_key("outcome", "in_backoff", "resting")
    _rename_key("outcome", "deferred", "resting")


def _rename_key(column: str, old: str, new: str, *, where: str = "true") -> None:
    """Rename a key of the JSON that jobs hold."""
    op.execute(RENAME_KEY.format(column=column, old=old, new=new, where=where))
