"""SQL for the automatic title of a conversation, which is part of its summary and deleted with it."""

from __future__ import annotations

SUMMARY_TITLE = "(SELECT nullif(l.ledger ->> 'title', '') FROM compactions l WHERE l.id = s.head)"
"""SQL expression of the title in the newest summary of session `s`; NULL without a summary or title."""
