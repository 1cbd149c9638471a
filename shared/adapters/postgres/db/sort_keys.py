"""Terms that the session list is ordered by: the indexes are over the very same, or none would serve."""

from __future__ import annotations

CONTEXT_PCT = "(CASE WHEN context_limit > 0 THEN context_tokens * 100.0 / context_limit END)::float8"
READ_TOKENS = "input_tokens + cache_read_tokens + cache_write_tokens"
KNOWN_COST = "CASE WHEN cost_unknown_calls > 0 AND cost_micro = 0 THEN NULL ELSE cost_micro END"
CACHE_PCT = f"(CASE WHEN {READ_TOKENS} > 0 THEN cache_read_tokens * 100.0 / ({READ_TOKENS}) END)::float8"
