"""The script of misbehaviour: which request meets which fault, and how often.

A rule is `{"match": {...}, "times": N, "action": {...}}`. The first rule that matches and has times left
(1 unless said, -1 = always) is used, one per request.

Match: `model`; `contains` (in the newest user text); `anywhere` (in the whole body); `kind` (chat, flush,
summary, count_tokens; any = the first three, the default); `nth` (only the nth request that fits the rest).

Action, freely combined:
* before the answer: `latency` seconds; `status`, with `reason` (too_long, credit), `message`, `retry_after`
* the answer: `text`; `tool_use` [{name, input}]; `thinking` text; `empty`; `refusal`; `prose` (not JSON)
* the stream: `pace_ms`; `drip` seconds between single bytes; `no_message_stop`
* the stream, after k deltas: `cut` k; `stream_error` k (`error_type`, else overloaded_error); `malformed` k;
  `unknown_event` k; `stall` {after, seconds}

Without a stream `cut` drops the connection, `stream_error` is the same error as a status, `stall` waits, and
`malformed` spoils the JSON.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.fakes.messages_api.shapes import Json, compact_json, newest_words

MATCHES = frozenset({"model", "contains", "anywhere", "nth", "kind"})
ACTIONS: dict[str, type | tuple[type, ...]] = {
    "latency": (int, float),
    "status": int,
    "reason": str,
    "message": str,
    "retry_after": (int, float),
    "text": str,
    "tool_use": list,
    "thinking": str,
    "empty": bool,
    "refusal": bool,
    "prose": bool,
    "pace_ms": (int, float),
    "drip": (int, float),
    "stream_error": int,
    "error_type": str,
    "cut": int,
    "stall": dict,
    "malformed": int,
    "unknown_event": int,
    "no_message_stop": bool,
}
KINDS = frozenset({"chat", "flush", "summary", "count_tokens", "any"})


class BadScript(ValueError):
    """A rule that no request could meet, or an action that this fake does not know."""


@dataclass(slots=True, kw_only=True)
class Rule:
    match: Json
    action: Json
    times: int = 1
    seen: int = field(default=0, init=False)
    used: int = field(default=0, init=False)

    def meets(self, body: Json, kind: str) -> bool:
        wanted = self.match.get("kind", "any")
        if kind != wanted and not (wanted == "any" and kind != "count_tokens"):
            return False
        if "model" in self.match and body.get("model") != self.match["model"]:
            return False
        if "contains" in self.match and self.match["contains"] not in newest_words(body["messages"])[0]:
            return False
        return "anywhere" not in self.match or self.match["anywhere"] in compact_json(body)

    def take(self) -> bool:
        self.seen += 1
        due = self.match.get("nth") in (None, self.seen)
        if not due or self.used == self.times:
            return False
        self.used += 1
        return True

    def as_json(self) -> Json:
        return {
            "match": self.match,
            "times": self.times,
            "action": self.action,
            "seen": self.seen,
            "used": self.used,
        }


class Script:
    def __init__(self) -> None:
        self.rules: tuple[Rule, ...] = ()

    def set(self, rules: object) -> None:
        if not isinstance(rules, list):
            raise BadScript("a script is a list of rules")
        self.rules = tuple(_rule(rule) for rule in rules)

    def action_for(self, body: Json, kind: str) -> Json:
        """What happens to this request: every rule counts it, the first that is due is used."""
        action: Json | None = None
        for rule in self.rules:
            if not rule.meets(body, kind):
                continue
            if action is None:
                action = rule.action if rule.take() else None
            else:
                rule.seen += 1
        return action or {}


def _rule(rule: Any) -> Rule:
    if not isinstance(rule, dict) or set(rule) - {"match", "times", "action"} or "action" not in rule:
        raise BadScript(f"a rule has match, times and action: {rule!r}")
    match, action, times = rule.get("match", {}), rule["action"], rule.get("times", 1)
    if type(times) is not int:
        raise BadScript(f"times is a number: {times!r}")
    unknown = (set(match) - MATCHES) | (set(action) - set(ACTIONS))
    if unknown:
        raise BadScript(f"unknown in a rule: {', '.join(sorted(unknown))}")
    if match.get("kind", "any") not in KINDS:
        raise BadScript(f"unknown kind: {match['kind']!r}")
    for name, value in action.items():
        if not isinstance(value, ACTIONS[name]) or (isinstance(value, bool) and ACTIONS[name] is not bool):
            raise BadScript(f"{name} cannot be {value!r}")
    if "stall" in action and not {"after", "seconds"} >= set(action["stall"]):
        raise BadScript("stall has after and seconds")
    return Rule(match=match, action=action, times=times)
