"""What a conversation is called by the model that summarised it: a part of the summary, and gone with it."""

from __future__ import annotations

SUMMARY_TITLE = "(SELECT nullif(l.ledger ->> 'title', '') FROM links l WHERE l.id = s.head)"
"""Of a session `s`; null where it has no summary, or none that names it."""
TITLE = f"""coalesce((SELECT x.title FROM addresses x
            WHERE x.session_id = s.id AND x.channel = 'web' AND x.title <> '' LIMIT 1), {SUMMARY_TITLE})"""
"""What operators see: the name that its person gave it, else that."""
