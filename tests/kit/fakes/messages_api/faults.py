"""The script of misbehaviour: which request meets which fault, and how often.

A rule is `{"match": {...}, "times": N, "action": {...}}`. The first rule that matches and has times left
(1 unless said, -1 = always) is used, one per request.

Match: `model`; `contains` (in the newest user text); `anywhere` (in the whole body); `kind` (chat, flush,
summary, count_tokens; any = the first three, the default); `nth` (only the nth request that fits the rest).

Action, freely combined:
* before the answer: `latency` seconds; `status`, with `reason` (too_long, credit), `message`, `retry_after`
* the answer: `text`; `tool_use` [{name, input}]; `thinking` text; `empty`; `refusal`; `prose` (not JSON);
  `web_search` words that the provider itself searches for before it says `text`; `odd_block` any block;
  `lengthen` by prose to at most so many characters;
  `pause` in the middle of that search; `counted` {input_tokens …}, said in place of the true usage; `read`
  for an answer that quotes what is recalled, or admits that it does not know
* the stream: `pace_ms`; `drip` seconds between single bytes; `no_message_stop`
* the stream, after k deltas: `cut` k; `stream_error` k (`error_type`, else overloaded_error); `malformed` k;
  `unknown_event` k; `stall` {after, seconds}

Without a stream `cut` drops the connection, `stream_error` is the same error as a status, `stall` waits, and
`malformed` spoils the JSON.
"""

from __future__ import annotations

from tests.kit.fakes.messages_api.shapes import Json, compact_json, newest_words
from tests.kit.fakes.script import Script, Words

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
    "lengthen": int,
    "read": bool,
    "web_search": str,
    "pause": bool,
    "odd_block": dict,
    "counted": dict,
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


Asked = tuple[Json, str]
"""A request: its body and its kind."""


def make_script() -> Script[Asked]:
    return Script(Words(matches=MATCHES, actions=ACTIONS, meets=_meets, objection=_objection))


def _meets(match: Json, asked: Asked) -> bool:
    body, kind = asked
    wanted = match.get("kind", "any")
    if kind != wanted and not (wanted == "any" and kind != "count_tokens"):
        return False
    if "model" in match and body.get("model") != match["model"]:
        return False
    if "contains" in match and match["contains"] not in newest_words(body["messages"])[0]:
        return False
    return "anywhere" not in match or match["anywhere"] in compact_json(body)


def _objection(match: Json, action: Json) -> str:
    if match.get("kind", "any") not in KINDS:
        return f"unknown kind: {match['kind']!r}"
    if "stall" in action and not {"after", "seconds"} >= set(action["stall"]):
        return "stall has after and seconds"
    return ""
