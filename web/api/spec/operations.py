"""Every route of REST: who may come, with what, and what they get; without a row no key comes in."""

from __future__ import annotations

from typing import Literal

from shared.core.identity.api_keys import Scope
from shared.core.memory.search import QUERY_CHARS
from web.api.spec.admin_operations import FOR_HOUSE
from web.api.spec.alerts_operations import FOR_ALERTS
from web.api.spec.job_operations import FOR_WORK
from web.api.spec.money_operations import FILTERS, FOR_MONEY
from web.api.spec.operation import (
    BEFORE,
    COMMAND,
    CURSOR,
    KEY_HEADER,
    LIMIT,
    NOTE,
    OF,
    SESSION,
    SUMMARY,
    V1,
    Operation,
    Parameter,
    choice,
    done,
    number,
    seen,
    some_words,
)
from web.api.spec.operators_operations import FOR_OPERATORS
from web.api.spec.session_operations import FOR_SESSIONS
from web.api.spec.widget_operations import FOR_WIDGETS

_PEOPLE = (
    Operation(
        method="POST",
        path=f"{V1}/sessions",
        name="openSession",
        group="conversations",
        told="Open the conversation of somebody whom your program knows.",
        more="The same `external_id` on the same site is the same conversation.",
        scope="messages:write",
        body="NewSession",
        answers={200: "OpenedSession", 201: "OpenedSession"},
        refusals=(404,),
    ),
    Operation(
        method="POST",
        path=f"{V1}/sessions/{{id}}/messages",
        name="writeMessage",
        group="conversations",
        told="Write a message; the answer may be waited for.",
        more="Stored when 202 comes: it will be answered, whether you listen or not. `?wait=` holds the "
        "reply until the answer is there; as events it comes while it is written.",
        visitor=True,
        scope="messages:write",
        body="NewMessage",
        parameters=(
            SESSION,
            number("wait", "seconds to wait for the answer", least=0, most=60),
            KEY_HEADER,
        ),
        answers={200: "Answered", 202: "Accepted"},
        events={"accepted": "Accepted", "delta": "Delta", "message": "Event", "done": "Done"},
        refusals=(404, 409, 413, 422, 503),
    ),
    Operation(
        method="GET",
        path=f"{V1}/sessions/{{id}}/messages",
        name="listMessages",
        group="conversations",
        told="The newest messages, oldest first.",
        more="`before` of an answer is where the page before it ends; null when there is none. Operators get "
        "all entries, by turn and step.",
        visitor=True,
        scope="sessions:read",
        role="viewer",
        parameters=(
            SESSION,
            LIMIT,
            Parameter(
                name="before",
                told="as the page after it says",
                schema={"type": "string", "pattern": r"^[0-9]{1,9}(\.[0-9]{1,9})?$"},
            ),
        ),
        answers={200: "Messages|Lines"},
        refusals=(404,),
    ),
    Operation(
        method="GET",
        path=f"{V1}/sessions/{{id}}/events",
        name="listEvents",
        group="conversations",
        told="What happened after a number, for those who ask again and again.",
        more="Numbers have no gaps. When `log_epoch` grows, a backup was restored: begin again at 0.",
        visitor=True,
        scope="sessions:read",
        parameters=(
            SESSION,
            LIMIT,
            number("after", "the number of the last event that you know", least=0),
        ),
        answers={200: "Events"},
        refusals=(404,),
    ),
    Operation(
        method="GET",
        path=f"{V1}/sessions/{{id}}/search",
        name="searchMessages",
        group="conversations",
        told="Messages that say all of these words, newest first, summarised ones too.",
        more="An excerpt is text in parts; `hit` marks what was searched for. For frequent words, `next` may "
        "come with few hits or none: the next page looks further back.",
        visitor=True,
        scope="sessions:read",
        parameters=(
            SESSION,
            LIMIT,
            some_words("q", "the words", QUERY_CHARS),
            some_words("before", "`next` of the page before", 60),
        ),
        answers={200: "Found"},
        refusals=(404,),
    ),
    Operation(
        method="GET",
        path=f"{V1}/sessions/{{id}}/history",
        name="showHistory",
        group="conversations",
        told="What a screen shows: messages, results of commands, summaries in force, oldest first.",
        more="One of `before`, `after`, `since` and `around` says where; without them, the end. Older events "
        "lie before the answer's `before`, newer ones after its `after`; null when there are none.",
        visitor=True,
        scope="sessions:read",
        parameters=(
            SESSION,
            LIMIT,
            number("before", "the newest events with a lower number"),
            number("after", "the oldest events with a higher number", least=0),
            some_words("since", "the first events since a moment such as 2026-11-03T00:00:00Z", 40),
            some_words("around", "the events from a message on, by its `mid`", 20),
        ),
        answers={200: "History"},
        refusals=(404,),
    ),
    Operation(
        method="GET",
        path=f"{V1}/archived",
        name="listArchived",
        group="conversations",
        told="Earlier conversations that went on elsewhere after a /link.",
        visitor=True,
        scope="sessions:read",
        parameters=(OF,),
        answers={200: "Archived"},
        refusals=(404,),
    ),
    Operation(
        method="GET",
        path=f"{V1}/export",
        name="export",
        group="conversations",
        told="Everything that is kept of the person, as a file.",
        visitor=True,
        scope="sessions:read",
        parameters=(OF, choice("format", "Markdown without it", "md", "markdown", "json")),
        answers={200: ""},
        refusals=(404,),
        media="*/*",
    ),
    Operation(
        method="GET",
        path=f"{V1}/compactions/{{id}}/messages",
        name="listOriginals",
        group="conversations",
        told="The messages that a summary stands for.",
        visitor=True,
        scope="sessions:read",
        role="viewer",
        more="`before` of an answer is where the page before it ends; null when there is none.",
        parameters=(SUMMARY, OF, LIMIT, some_words("before", "as the page after it says", 30)),
        answers={200: "Originals|Lines"},
        refusals=(404,),
    ),
    Operation(
        method="GET",
        path=f"{V1}/commands",
        name="listCommands",
        group="commands",
        told="Which commands there are, and their arguments.",
        anyone=True,
        visitor=True,
        scope="commands:run",
        answers={200: "Commands"},
    ),
    Operation(
        method="POST",
        path=f"{V1}/commands/{{name}}",
        name="runCommand",
        group="commands",
        told="Run a command for a conversation.",
        more="Arguments stand beside `session_id` by name, or in `args` as a person types them. As events "
        "its progress is told; the last event is `result` or `error`. Who hangs up does not end it.",
        visitor=True,
        scope="commands:run",
        role="operator",
        body="CommandCall",
        parameters=(COMMAND, KEY_HEADER),
        answers={200: "CommandResult"},
        events={"progress": "Progress", "result": "CommandResult", "error": "Error"},
        refusals=(404, 409, 503),
    ),
    Operation(
        method="GET",
        path=f"{V1}/memory",
        name="listNotes",
        group="memory",
        told="What is remembered of the person, the newest first, or found by words.",
        visitor=True,
        scope="memory:read",
        parameters=(OF, some_words("q", "words to look for", 300)),
        answers={200: "Notes"},
        refusals=(404,),
    ),
    Operation(
        method="PUT",
        path=f"{V1}/memory/{{id}}",
        name="changeNote",
        group="memory",
        told="Correct a note; the newer one has an id of its own.",
        visitor=True,
        scope="memory:write",
        parameters=(NOTE, OF),
        body="NoteChange",
        answers={200: "ChangedNote"},
        refusals=(404, 409, 410),
    ),
    Operation(
        method="DELETE",
        path=f"{V1}/memory/{{id}}",
        name="putNoteAway",
        group="memory",
        told="Put a note out of sight; for a while it can come back.",
        visitor=True,
        scope="memory:write",
        parameters=(NOTE, OF),
        answers={200: "ForgottenNote"},
        refusals=(404, 409, 410),
    ),
    Operation(
        method="POST",
        path=f"{V1}/memory/{{id}}/restore",
        name="restoreNote",
        group="memory",
        told="Bring a note back that was put away.",
        visitor=True,
        scope="memory:write",
        parameters=(NOTE, OF),
        answers={200: "ChangedNote"},
        refusals=(404, 409, 410),
    ),
    Operation(
        method="GET",
        path=f"{V1}/openapi.json",
        name="describe",
        group="description",
        told="This description.",
        anyone=True,
        answers={200: ""},
    ),
)


_PLACE = some_words("before", "a page's `before`", 40)
_OPERATORS = (
    seen("/me", "me", "Who is logged in.", "Me"),
    done(
        "POST", "/me/password", "setPassword", "Set one's own password; every other login ends.", "Success",
        role="viewer", body="Password", refusals=(409, 422),
    ),
    seen("/overview", "overview", "Spend of today, and what needs an eye.", "Overview"),
    seen(
        "/sessions", "listSessions", "Conversations, by any order.", "Sessions", *FILTERS, CURSOR, LIMIT,
    ),
    seen(
        "/sessions/{id}", "session", "One conversation: facts, contents of its window, spend.", "Session",
        SESSION,
    ),
    seen(
        "/sessions/{id}/compactions", "listCompactions",
        "Summaries, newest first, and whether each can be undone.", "Compactions", SESSION, BEFORE, LIMIT,
    ),
    seen(
        "/sessions/{id}/context", "contextAudit", "What each call of the model was given.", "ContextAudit",
        SESSION, _PLACE, LIMIT,
    ),
    done(
        "POST", "/compactions/{id}/undo", "undoCompaction", "Take a summary back.", "Success", SUMMARY,
    ),
    done(
        "POST", "/compactions/{id}/restore", "restoreCompaction", "Put a summary in force again.", "Success",
        SUMMARY,
    ),
    seen(
        "/handovers", "listHandovers", "Conversations that a human was asked for, or has; the longest first.",
        "Handovers", choice("state", "one of the two", "waiting", "human"),
    ),
    done(
        "POST", "/sessions/{id}/handover", "moveHandover",
        "Take a conversation, or give it back to the assistant.", "HandoverMoved", SESSION,
        body="HandoverMove",
        more="What is so already stays so. An admin may return what another operator has.",
    ),
    done(
        "POST", "/sessions/{id}/replies", "reply", "Write to the person, in a conversation that was taken.",
        "Accepted", SESSION, body="Reply",
        more="Stored when this answers, and on its way; the same `cid` again is the same message.",
    ),
)  # fmt: skip

OPERATIONS: tuple[Operation, ...] = (
    *_PEOPLE,
    *FOR_WIDGETS,
    *_OPERATORS,
    *FOR_SESSIONS,
    *FOR_WORK,
    *FOR_ALERTS,
    *FOR_OPERATORS,
    *FOR_MONEY,
    *FOR_HOUSE,
)
ANYONE: Literal["anyone"] = "anyone"
_OPENS = {(one.method, one.path): ANYONE if one.anyone else one.scope for one in OPERATIONS}


def scope_of(method: str, path: str) -> Scope | Literal["anyone"] | None:
    """What opens a route to a key; None where no key may come."""
    return _OPENS.get(("GET" if method == "HEAD" else method, path))
