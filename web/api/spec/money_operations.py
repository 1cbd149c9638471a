"""The operations of costs, savings and sheets."""

from __future__ import annotations

from shared.adapters.postgres.dashboard.cost_queries import GROUPS
from shared.adapters.postgres.dashboard.read_models_sql import SORTS, STATES
from web.api.spec.operation import Operation, Parameter, choice, seen, some_words

_DAY = {"type": "string", "format": "date"}
_FROM = Parameter(name="from", told="the first day", schema=_DAY)
_TO = Parameter(name="to", told="the last day", schema=_DAY)
_GROUP = choice("group", "what is summed up", *GROUPS)
FILTERS = (
    some_words("q", "a part of a name, or the beginning of an id"),
    some_words("channel", "of the newest message", 50),
    choice("state", "what is going on", *STATES),
    some_words("agent", "its name"),
    some_words("site", "of the widget"),
    Parameter(name="min_pct", told="how full at least", schema={"type": "number", "minimum": 0}),
    Parameter(name="from", told="active since", schema=_DAY),
    Parameter(name="to", told="active before", schema=_DAY),
    choice("sort", "a minus is for the largest first", *SORTS, *(f"-{column}" for column in SORTS)),
)
"""Of the list of conversations, on the page and as a sheet."""


FOR_MONEY: tuple[Operation, ...] = (
    seen("/costs", "costs", "What was spent, by a group.", "Costs", _GROUP, _FROM, _TO),
    seen("/savings", "savings", "What caching and summaries saved this month.", "Savings"),
    seen(
        "/export/sessions.csv", "exportSessions", "The list of conversations as CSV.", "", *FILTERS,
        media="text/csv",
    ),
    seen("/export/costs.csv", "exportCosts", "Costs as CSV.", "", _GROUP, _FROM, _TO, media="text/csv"),
)  # fmt: skip
