"""What each conversation spent by purpose and model: added up by the statement that writes the ledger."""

from __future__ import annotations

from collections.abc import Mapping

SUMS = {
    "calls": "count(*)",
    "aborted": "count(*) FILTER (WHERE status = 'aborted')",
    "input_tokens": "sum(input_tokens)",
    "output_tokens": "sum(output_tokens)",
    "cache_read_tokens": "sum(cache_read_tokens)",
    "cache_write_tokens": "sum(cache_write_tokens)",
    "cost_micro": "sum(cost_micro)",
    "unknown_cost": "count(*) FILTER (WHERE cost_micro IS NULL)",
    "unknown_tokens": "count(*) FILTER (WHERE NOT known)",
}
"""Of rows of the ledger; the columns are called the same, and a cost is null while no call's is known."""

_OF_ONE = {
    **{name: name for name in SUMS},
    "calls": "1",
    "aborted": "(status = 'aborted')::int",
    "unknown_cost": "(cost_micro IS NULL)::int",
    "unknown_tokens": "(NOT known)::int",
}
"""The same of a single row: nine sums of one number each would take longer than what they add up."""


def _add_up(sums: Mapping[str, str], *, group: str) -> str:
    return f"""
  INSERT INTO session_spend AS k (session_id, purpose, model, {", ".join(sums)})
  SELECT session_id, purpose, model, {", ".join(sums.values())} FROM u {group}
  ON CONFLICT (session_id, purpose, model) DO UPDATE SET {
        ", ".join(f"{name} = k.{name} + excluded.{name}" for name in SUMS if name != "cost_micro")
    },
         cost_micro = coalesce(k.cost_micro + excluded.cost_micro, k.cost_micro, excluded.cost_micro)
"""


ADD_UP = _add_up(SUMS, group="GROUP BY session_id, purpose, model")
"""Of the rows that `u` has written, so that a sum cannot be forgotten or counted twice."""

RETURNING = """RETURNING session_id, purpose, model, status, input_tokens, output_tokens, cache_read_tokens,
            cache_write_tokens, known, cost_micro"""
WRITTEN = f"""{RETURNING}
), spent_on AS ({ADD_UP}"""
"""How `u` ends, and the part after it; both without a closing bracket."""
WRITTEN_ONE = f"""{RETURNING}
), spent_on AS ({_add_up(_OF_ONE, group="")}"""
"""As `WRITTEN`, where `u` is one row at most."""
