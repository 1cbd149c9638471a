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

from tests.kit.fakes.bot_api.calls import Record
from tests.kit.fakes.bot_api.shapes import Json
from tests.kit.fakes.script import Script, Words

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


def make_script() -> Script[Record]:
    return Script(Words(matches=MATCHES, actions=ACTIONS, meets=_meets, objection=_objection))


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


def _meets(match: Json, record: Record) -> bool:
    params = record.params
    if "method" not in match and record.method == "getUpdates":
        return False
    words = str(params.get("text") or params.get("caption") or "")
    return (
        match.get("method", record.method).lower() == record.method.lower()
        and match.get("bot", record.bot) == record.bot
        and _same(match, "chat", params.get("chat_id"))
        and _same(match, "thread", params.get("message_thread_id"))
        and match.get("contains", "") in words
        and ("has" not in match or match["has"] in params)
    )


def _objection(match: Json, action: Json) -> str:
    if not action:
        return "unknown in a rule: no action"
    if action.get("reset", "before") not in ("before", "after"):
        return "reset is 'before' or 'after'"
    return ""
