"""The script of misbehaviour: which call meets which fault, and how often.

A rule is `{"match": {...}, "times": N, "action": {...}}`. The first rule that matches and has times left
(1 unless said, -1 = always) is used, one per call.

Match: `method` ("file" for downloads; all but getUpdates unless said), `bot` and `chat` by id, `thread`,
`contains` (in the text or caption), `has` (the name of a parameter that is given), `nth` (only the nth call
that fits the rest).

Action, freely combined where it makes sense:
* `latency`: seconds before anything happens
* `status`, with `description`, `retry_after`, `migrate_to`, or `html: true` (a proxy's page instead of JSON)
* `reset`: "before" cuts the connection with nothing done, "after" when all is done but the answer
* `stall`: seconds of silence before the call is processed; `stall_after`: the same when it is
* `truncate: true` (half of the JSON), `slow`: seconds over which the body drips
* `then_refuse`: for so many seconds after this call nobody can connect
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.fakes.bot_api.calls import Record
from tests.fakes.bot_api.shapes import Json

MATCHES = frozenset({"method", "bot", "chat", "thread", "contains", "has", "nth"})
ACTIONS: dict[str, type | tuple[type, ...]] = {
    "latency": (int, float),
    "status": int,
    "description": str,
    "retry_after": int,
    "migrate_to": int,
    "html": bool,
    "reset": str,
    "stall": (int, float),
    "stall_after": (int, float),
    "truncate": bool,
    "slow": (int, float),
    "then_refuse": (int, float),
}
USUAL = {
    400: "Bad Request: can't parse entities",
    401: "Unauthorized",
    403: "Forbidden: bot was blocked by the user",
    404: "Not Found",
    409: "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running",
    500: "Internal Server Error",
    502: "Bad Gateway",
}
HTML_PAGE = "<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>nginx</body>\r\n</html>\r\n"


class BadScript(ValueError):
    """A rule that no call could meet, or an action that this fake does not know."""


@dataclass(slots=True, kw_only=True)
class Rule:
    match: Json
    action: Json
    times: int = 1
    seen: int = field(default=0, init=False)
    used: int = field(default=0, init=False)

    def meets(self, record: Record) -> bool:
        wanted, params = self.match, record.params
        if "method" not in wanted and record.method == "getUpdates":
            return False
        words = str(params.get("text") or params.get("caption") or "")
        return (
            wanted.get("method", record.method).lower() == record.method.lower()
            and wanted.get("bot", record.bot) == record.bot
            and _same(wanted, "chat", params.get("chat_id"))
            and _same(wanted, "thread", params.get("message_thread_id"))
            and wanted.get("contains", "") in words
            and ("has" not in wanted or wanted["has"] in params)
        )

    def take(self) -> bool:
        self.seen += 1
        due = self.match.get("nth") in (None, self.seen)
        if not due or self.used == self.times:
            return False
        self.used += 1
        return True

    def as_json(self) -> Json:
        return {name: getattr(self, name) for name in self.__slots__}


class Script:
    def __init__(self) -> None:
        self.rules: list[Rule] = []

    def set(self, rules: object) -> None:
        self.rules = []
        self.extend(rules)

    def extend(self, rules: object) -> None:
        if not isinstance(rules, list):
            raise BadScript("a script is a list of rules")
        self.rules += [_rule(rule) for rule in rules]

    def action_for(self, record: Record) -> Json:
        """What happens to this call: every rule counts it, the first that is due is used."""
        action: Json | None = None
        for rule in self.rules:
            if not rule.meets(record):
                continue
            if action is None:
                action = rule.action if rule.take() else None
            else:
                rule.seen += 1
        return action or {}


def error_body(action: Json) -> Json:
    status = action["status"]
    parameters: Json = {}
    if status == 429:
        parameters["retry_after"] = action.get("retry_after", 1)
    if "migrate_to" in action:
        parameters["migrate_to_chat_id"] = action["migrate_to"]
    usual = USUAL.get(status, "Error")
    if status == 429:
        usual = f"Too Many Requests: retry after {parameters['retry_after']}"
    body: Json = {"ok": False, "error_code": status, "description": action.get("description", usual)}
    return {**body, "parameters": parameters} if parameters else body


def _same(wanted: Json, name: str, value: object) -> bool:
    return name not in wanted or str(wanted[name]) == str(value)


def _rule(rule: Any) -> Rule:
    if not isinstance(rule, dict) or set(rule) - {"match", "times", "action"} or "action" not in rule:
        raise BadScript(f"a rule has match, times and action: {rule!r}")
    match, action, times = rule.get("match", {}), rule["action"], rule.get("times", 1)
    if type(times) is not int:
        raise BadScript(f"times is a number: {times!r}")
    unknown = (set(match) - MATCHES) | (set(action) - set(ACTIONS))
    if unknown or not action:
        raise BadScript(f"unknown in a rule: {', '.join(sorted(unknown)) or 'no action'}")
    for name, value in action.items():
        if not isinstance(value, ACTIONS[name]) or (isinstance(value, bool) and ACTIONS[name] is not bool):
            raise BadScript(f"{name} cannot be {value!r}")
    if action.get("reset", "before") not in ("before", "after"):
        raise BadScript("reset is 'before' or 'after'")
    return Rule(match=match, action=action, times=times)
