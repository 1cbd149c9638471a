"""Spending of each conversation by purpose and model, summed by the statement that writes the ledger."""

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
"""Sums of ledger rows; columns have the same names, and a cost is null while no call's is known."""

_OF_ONE = {
    **{name: name for name in SUMS},
    "calls": "1",
    "aborted": "(status = 'aborted')::int",
    "unknown_cost": "(cost_micro IS NULL)::int",
    "unknown_tokens": "(NOT known)::int",
}
"""The same of a single row: nine sums of one number each would take longer than what they add up."""


def _grown(more: str) -> str:
    """The sums of a row `k`, with those of `more`."""
    sums = ", ".join(f"{name} = k.{name} + {more}.{name}" for name in SUMS if name != "cost_micro")
    return f"""{sums},
         cost_micro = coalesce(k.cost_micro + {more}.cost_micro, k.cost_micro, {more}.cost_micro)"""


def _add_up(sums: Mapping[str, str], *, rest: str) -> str:
    return f"""
  INSERT INTO session_spend AS k (session_id, purpose, model, {", ".join(sums)})
  SELECT session_id, purpose, model, {", ".join(sums.values())} FROM u {rest}
  ON CONFLICT (session_id, purpose, model) DO UPDATE SET {_grown("excluded")}
"""


ADD_UP = _add_up(SUMS, rest="GROUP BY session_id, purpose, model")
"""Sums of the rows that `u` has written, so that none is forgotten or counted twice."""


def render_total(sums: str) -> str:
    """The change of a conversation's total by the sums of a parameter."""
    return "total_tokens = total_tokens" + "".join(f" + ({sums}::bigint[])[{n}]" for n in range(1, 5))


RETURNING = """RETURNING session_id, purpose, model, status, input_tokens, output_tokens, cache_read_tokens,
            cache_write_tokens, known, cost_micro"""
WRITTEN = f"""{RETURNING}
), spent_on AS ({ADD_UP}"""
"""How `u` ends, and the part after it; both without a closing bracket."""
_ONE = ", ".join(f"{value} AS {name}" for name, value in _OF_ONE.items())
WRITTEN_ONE = f"""{RETURNING}
), grown AS (
  UPDATE session_spend k SET {_grown("one")}
    FROM (SELECT session_id, purpose, model, {_ONE} FROM u) one
   WHERE k.session_id = one.session_id AND k.purpose = one.purpose AND k.model = one.model
  RETURNING true
), spent_on AS ({_add_up(_OF_ONE, rest="WHERE NOT EXISTS (SELECT FROM grown)")}"""
"""Form of `WRITTEN` for at most one row, whose sums mostly exist, so that no conflict must lock them."""
