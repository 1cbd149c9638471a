"""The operations of one session's page: its line, its window now, replay, estimates, what is done."""

from __future__ import annotations

from web.api.spec.operation import SESSION, SUMMARY, Operation, choice, done, number, seen

_BODY = choice("body", "adds the request as it was sent", "1")
_FORCE = choice("force", "as if a gain were of no matter", "1")


_REFUSALS = (404, 409, 503)
_TAKES_LONG = (404, 409, 413, 503)

FOR_SESSIONS: tuple[Operation, ...] = (
    seen(
        "/sessions/{id}/timeline", "timeline", "How full the window was at each turn.", "Timeline", SESSION,
        number("max_points", "at most so many", most=2000),
        number("from_turn", "the first turn that is shown"),
        refusals=_REFUSALS,
    ),
    seen(
        "/sessions/{id}/now", "windowNow", "What fills the window now, and by which numbers.", "WindowNow",
        SESSION, refusals=_REFUSALS,
    ),
    seen(
        "/sessions/{id}/replay", "replay", "What the model saw at a turn's call.", "Replay", SESSION,
        number("turn", "the newest without it"), number("call", "of the turn; the last without it"), _BODY,
        refusals=_REFUSALS,
    ),
    seen(
        "/sessions/{id}/export", "exportSession", "The conversation as a file, and what was noted in it.", "",
        SESSION, choice("format", "JSON without it", "md", "json"), refusals=_REFUSALS, media="*/*",
    ),
    seen(
        "/sessions/{id}/estimate", "estimate",
        "What a summary or a flush would read, save and cost; no model is asked.", "Estimate", SESSION,
        choice("do", "which of the two", "compact", "flush"), _FORCE, role="operator", refusals=_REFUSALS,
    ),
    done(
        "POST", "/sessions/{id}/compact", "compactNow",
        "Summarise older messages now; answers when it is done.", "Success", SESSION, body="CompactNow",
        refusals=_TAKES_LONG,
    ),
    done(
        "POST", "/sessions/{id}/flush", "flushNow",
        "Save to memory now what was not read yet; answers when it is done.", "Success", SESSION,
        body="FlushNow", refusals=_TAKES_LONG,
    ),
    seen(
        "/compactions/{id}/diff", "diffSummary", "What a summary changed against the one before it.",
        "SummaryDiff", SUMMARY, refusals=_REFUSALS,
    ),
)  # fmt: skip
