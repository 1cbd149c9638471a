"""SQL for the automatic title of a conversation, which is part of its summary and deleted with it."""

from __future__ import annotations

SUMMARY_TITLE = "(SELECT nullif(l.ledger ->> 'title', '') FROM compactions l WHERE l.id = s.head)"
"""SQL expression of the title in the newest summary of session `s`; NULL without a summary or title."""
TITLE = f"""coalesce((SELECT x.title FROM addresses x
            WHERE x.session_id = s.id AND x.channel = 'web' AND x.title <> '' LIMIT 1), {SUMMARY_TITLE})"""
"""SQL expression of the title of session `s` for operators.

It is the title that the person chose, else that of the summary; NULL if there is neither.
"""
