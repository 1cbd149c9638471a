"""SQL for the automatic title of a conversation, which is part of its summary and deleted with it."""

from __future__ import annotations

SUMMARY_TITLE = "(SELECT nullif(l.ledger ->> 'title', '') FROM compactions l WHERE l.id = s.head)"
"""Title of session `s` in its summary; NULL without one."""
TITLE = f"""coalesce((SELECT x.title FROM addresses x
            WHERE x.session_id = s.id AND x.channel = 'web' AND x.title <> '' LIMIT 1), {SUMMARY_TITLE})"""
"""Title of session `s` for operators: the one that the person chose, else the summary's."""
