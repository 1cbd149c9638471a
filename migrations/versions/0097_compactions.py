"""Compactions: the rows that hide a part of a log are called what everything else calls them."""

from __future__ import annotations

from alembic import op

from migrations.renames import rename, reverse

revision = "0097"
down_revision = "0096"
branch_labels = None
depends_on = None

NAMES = {
    "links": "compactions",
    "links_by_time": "compactions_by_time",
    "links_id_seq": "compactions_id_seq",
    "links_of_session": "compactions_of_session",
    "links_pkey": "compactions_pkey",
    "links_public_id_key": "compactions_public_id_key",
    "links_undone": "compactions_undone",
    "links_written": "compactions_written",
    "active_links_do_not_overlap": "active_compactions_do_not_overlap",
    "link_id": "compaction_id",
    "link_counts_from_one": "compaction_counts_from_one",
    "link_kind": "compaction_kind",
    "link_range": "compaction_range",
    "link_session": "compaction_session",
    "link_tokens": "compaction_tokens",
}


def upgrade() -> None:
    rename(NAMES)
    _rename_values("links", "compactions")


def downgrade() -> None:
    rename(reverse(NAMES))
    _rename_values("compactions", "links")


def _rename_values(old: str, new: str) -> None:
    """Rename the table where rows name it: the marks of sums by hour, and the counts of running erasures."""
    op.execute("ALTER TABLE hour_marks DROP CONSTRAINT hour_mark_source")
    op.execute(f"UPDATE hour_marks SET source = '{new}' WHERE source = '{old}'")
    op.execute(
        f"""ALTER TABLE hour_marks ADD CONSTRAINT hour_mark_source
              CHECK (source IN ('usage', '{new}', 'handovers', 'turns'))"""
    )
    op.execute(
        f"""UPDATE erasures SET counts = counts - '{old}' || jsonb_build_object('{new}', counts -> '{old}')
             WHERE state = 'running' AND counts ? '{old}'"""
    )
