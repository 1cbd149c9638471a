"""What `evertalk doctor` says of the models that running processes ask."""

from __future__ import annotations

from collections.abc import Sequence

from shared.adapters.postgres.dashboard.models import narrowed_windows, no_summaries
from shared.diagnostics.findings import Finding


async def check_models(database_url: str) -> Sequence[Finding]:
    """Says nothing where all is well, or where nothing runs."""
    found = [
        Finding(
            level="warn",
            what=f"{provider} refuses {model} more than {window:,} tokens; it should take {expected:,}",
            advice="Requests are kept shorter meanwhile. If that is its window, name it in a models file.",
        )
        for provider, model, window, expected in await narrowed_windows(database_url)
    ]
    if await no_summaries(database_url):
        advice = "The page Jobs says why; EVERTALK_SUMMARY_MODEL can name another model."
        what = "no model wrote the newest summaries: conversations go on with mechanical excerpts"
        found.append(Finding(level="warn", what=what, advice=advice))
    return found
