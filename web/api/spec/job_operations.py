"""The operations on jobs and deliveries, and the stream that tells operators' pages what changed."""

from __future__ import annotations

from web.api.spec.operation import BEFORE, CURSOR, LIMIT, Operation, Parameter, choice, done, seen
from web.api.spec.shapes import ID

_OF = Parameter(name="session", told="of one conversation", schema=ID)


def _change(path: str, name: str, told: str, more: str, body: str) -> Operation:
    return done("POST", path, name, told, "WorkChanged", body=body, more=more, refusals=(503,))


_ALL = (
    "By `ids`, or all that `match` up to the job `through`. What has moved on meanwhile is skipped, and told."
)
FOR_WORK: tuple[Operation, ...] = (
    seen(
        "/jobs", "listJobs", "Work in the background, and the processes.", "Jobs",
        choice("state", "of jobs", "due", "running", "failing", "done", "dead"),
        choice("kind", "of jobs", "flush", "compact", "tidy"), _OF, BEFORE, LIMIT,
    ),
    _change(
        "/jobs/retry", "retryJobs", "Begin jobs again that gave up, or that wait after an error.",
        _ALL, "JobsChange",
    ),
    _change("/jobs/cancel", "cancelJobs", "Put jobs away that nobody works on.", _ALL, "JobsChange"),
    seen(
        "/deliveries", "listDeliveries", "Parts of answers that may not be in their chat, or never will be.",
        "Deliveries", choice("state", "one of the two", "uncertain", "dead"), _OF, CURSOR, LIMIT,
    ),
    _change(
        "/deliveries/arrived", "markArrived", "Take parts of answers as arrived.", "Nothing is sent.",
        "PartsChange",
    ),
    _change(
        "/deliveries/send-again", "sendAgain", "Send parts of answers again.",
        "The bot's process sends them. What did arrive is in the chat twice then.", "PartsChange",
    ),
    seen(
        "/live", "followChanges", "Which topics changed, as server-sent events.", "",
        more="`hello`, then `changed` with `topics`, `progress` of summaries with `job`, `percent`, `stage`, "
        "and `end` when the login is over or the server restarts. What is new, the other operations tell.",
        refusals=(429, 503), media="text/event-stream",
    ),
)  # fmt: skip
