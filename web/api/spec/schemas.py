"""What REST sends and takes, as JSON Schema by name; the description of the interface refers to these."""

from __future__ import annotations

from web.api.spec.admin_schemas import HOUSE_SCHEMAS
from web.api.spec.alerts_schemas import ALERTS_SCHEMAS
from web.api.spec.job_schemas import WORK_SCHEMAS
from web.api.spec.money_schemas import MONEY_SCHEMAS
from web.api.spec.operators_schemas import OPERATOR_SCHEMAS
from web.api.spec.session_schemas import SESSION_SCHEMAS
from web.api.spec.shapes import (
    CID,
    FILE_ID,
    FLAG,
    ID,
    MAYBE_NUMBER,
    MAYBE_TEXT,
    NUMBER,
    SHARE,
    SITE_NAME,
    TEXT,
    THING,
    TIME,
    Schema,
    form,
    listed,
    maybe,
    ref,
    thing,
    words,
)

_ACCEPTED = maybe(
    thing(mid=TEXT, turn=NUMBER, event_seq=NUMBER),
    dup={"type": "boolean", "description": "it had been accepted before"},
)
_NOTE = thing(
    id=TEXT, text=TEXT, kind=TEXT, subject=TEXT, importance=NUMBER, authority=TEXT,
    observed_at=TIME, event_date=MAYBE_TEXT, from_turn=MAYBE_NUMBER,
)  # fmt: skip
_SHOWN_MESSAGE = thing(mid=TEXT, role=TEXT, text=TEXT, at=TIME)
_LINE = thing(seq=NUMBER, turn=NUMBER, step=NUMBER, author=TEXT, blocks=listed(THING), at=TIME)
_SESSION = thing(
    id=ID, person=MAYBE_TEXT, person_id=ID, kind=TEXT, agent=TEXT, turns=NUMBER, context_tokens=MAYBE_NUMBER,
    context_limit=MAYBE_NUMBER, context_pct=SHARE, cost_micro=MAYBE_NUMBER, compactions=NUMBER, state=TEXT,
    created_at=TIME, last_active_at=TIME,
)  # fmt: skip
_FOUND = thing(
    mid=TEXT, session_id=ID, here={**FLAG, "description": "false: it was said before a `/link`"}, turn=NUMBER,
    role=TEXT, at=TIME, excerpt=listed(thing(text=TEXT, hit=FLAG)),
)  # fmt: skip

_FOUND = thing(
    mid=TEXT, session_id=ID, here={**FLAG, "description": "false: it was said before a `/link`"}, turn=NUMBER,
    role=TEXT, at=TIME, excerpt=listed(thing(text=TEXT, hit=FLAG)),
)  # fmt: skip

SCHEMAS: dict[str, Schema] = {
    "Error": maybe(
        thing(
            code={"type": "string", "description": "one word for programs"},
            message={"type": "string", "description": "a sentence for people"},
            request_id=TEXT,
        ),
        details={
            "type": "object",
            "properties": {"advice": TEXT, "retry_after": {"type": "number"}},
            "description": "`advice` says what to do; `retry_after` is in seconds",
        },
    ),
    "Command": maybe(
        thing(name=TEXT, description=TEXT, arguments=THING, required=listed(TEXT)),
        args={"type": "string", "description": "as a person types them"},
    ),
    "Commands": thing(commands=listed(ref("Command"))),
    "CommandResult": maybe(
        thing(
            command=TEXT,
            success=FLAG,
            result={"type": "string", "description": "Markdown for a person"},
            error=MAYBE_TEXT,
            event_seq=MAYBE_NUMBER,
        ),
        cid=TEXT,
        choices=listed(thing(label=TEXT, args=TEXT)),
    ),
    "Progress": maybe(thing(command=TEXT, message=TEXT), percent=NUMBER),
    "NewSession": form(
        "external_id",
        external_id={
            **words(200, least=1),
            "pattern": r"\S",
            "description": "your id of the person; sent again, it opens the same conversation",
        },
        site={**words(64), "description": "whose texts and agent hold; else the key's, else `default`"},
        agent={**words(64), "description": "who answers, of a new conversation"},
        name={**words(200), "description": "what the person is called"},
    ),
    "OpenedSession": thing(session_id=ID, site=TEXT, created=FLAG),
    "NewMessage": form(
        text={**words(8_000), "description": "beside files it may be missing"},
        cid=CID,
        attachments={**listed(FILE_ID), "maxItems": 5, "description": "ids of uploads"},
    ),
    "Attachment": maybe(
        thing(id=TEXT, name=TEXT, mime=TEXT, size=NUMBER, url=TEXT),
        width=NUMBER,
        height=NUMBER,
        cut={"type": "boolean", "description": "only its beginning will be read"},
    ),
    "File": {"type": "string", "format": "binary"},
    "Accepted": _ACCEPTED,
    "Answered": maybe(_ACCEPTED, answer=ref("Event")),
    "Event": {
        "type": "object",
        "description": "a durable event, as the WebSocket sends it",
        "properties": {"t": TEXT, "event_seq": NUMBER},
        "required": ["t", "event_seq"],
    },
    "Delta": thing(mid=TEXT, turn=NUMBER, attempt=NUMBER, off=NUMBER, text=TEXT),
    "Done": thing(turn=NUMBER, state={"enum": ["done", "waiting"]}),
    "Messages": thing(messages=listed(ref("Event")), before=MAYBE_NUMBER),
    "Events": thing(events=listed(ref("Event")), next=NUMBER, head=NUMBER, log_epoch=NUMBER),
    "Found": thing(hits=listed(_FOUND), next=MAYBE_TEXT),
    "FoundConversations": thing(
        sessions=listed(maybe(thing(id=ID, hits=listed(_FOUND)), person=MAYBE_TEXT, kind=MAYBE_TEXT)),
        next=MAYBE_TEXT,
    ),
    "History": thing(events=listed(ref("Event")), before=MAYBE_NUMBER, after=MAYBE_NUMBER),
    "Originals": maybe(thing(messages=listed(_SHOWN_MESSAGE)), before=MAYBE_TEXT),
    "Archived": thing(
        sessions=listed(
            thing(
                session_id=TEXT,
                channel=TEXT,
                archived_at=TIME,
                messages=listed(thing(role=TEXT, text=TEXT, at=TIME)),
            )
        )
    ),
    "Note": _NOTE,
    "Notes": thing(notes=listed(ref("Note")), total=NUMBER),
    "ChangedNote": thing(note={"anyOf": [ref("Note"), {"type": "null"}]}),
    "ForgottenNote": thing(undo_until=MAYBE_TEXT),
    "NoteChange": {
        "type": "object",
        "properties": {
            "text": words(500, least=1),
            "importance": {"type": "integer", "minimum": 1, "maximum": 10},
            "event_date": {"type": ["string", "null"], "format": "date"},
        },
    },
    "Hello": {
        "type": "object",
        "description": "the frame `hello`",
        "properties": {
            "t": {"const": "hello"},
            "v": {"const": 1},
            "site": SITE_NAME,
            "last_seq": {"type": "integer", "minimum": 0, "maximum": 2**53},
            "token": words(256),
            "identity": {**TEXT, "description": "what the site signed of who this is"},
            "locale": TEXT,
            "tz": TEXT,
            "session": TEXT,
        },
        "required": ["t", "v", "site", "last_seq"],
    },
    "Ticket": maybe(thing(ticket=TEXT, stream=TEXT, expires_in={"type": "number"}), token=TEXT),
    "Frames": {
        "type": "object",
        "properties": {
            "site": SITE_NAME,
            "frames": {**listed(THING), "minItems": 1, "maxItems": 32},
            "stream": {**TEXT, "description": "which event stream is this screen's"},
            "locale": TEXT,
        },
        "required": ["site", "frames"],
    },
    "FramesAnswered": maybe(thing(frames=listed(THING)), close=thing(code=NUMBER, reason=TEXT)),
    "Site": maybe(
        thing(starters=listed(TEXT)),
        title=TEXT,
        welcome=TEXT,
        offline_text=TEXT,
        ai_notice=TEXT,
        launcher_label=TEXT,
        accent=TEXT,
        on_accent=TEXT,
        position=TEXT,
        privacy_url=TEXT,
    ),
    "RecoveryCode": thing(code=TEXT),
    "Recovery": {
        "type": "object",
        "properties": {
            "code": TEXT,
            "site": SITE_NAME,
            "page": {"type": "boolean", "description": "for our own page: its cookie instead of a token"},
        },
        "required": ["code"],
    },
    "Recovered": thing(token=MAYBE_TEXT),
    "Handovers": thing(
        enabled=FLAG,
        handovers=listed(
            thing(
                session=ID,
                state={"enum": ["waiting", "human"]},
                asked_by=TEXT,
                reason=TEXT,
                operator=TEXT,
                who=TEXT,
                person_id=ID,
                kind=TEXT,
                anonymous=FLAG,
                channel=TEXT,
                agent=TEXT,
                asked_at=TIME,
                taken_at=MAYBE_TEXT,
                waits_since=MAYBE_TEXT,
            )
        ),
    ),
    "HandoverMove": {
        "type": "object",
        "properties": {"action": {"enum": ["take", "return"]}},
        "required": ["action"],
    },
    "HandoverMoved": maybe(
        thing(state={"enum": ["bot", "waiting", "human"]}, changed=FLAG),
        name={**TEXT, "description": "who has it"},
    ),
    "Reply": {
        "type": "object",
        "properties": {"cid": words(100, least=1), "text": {**words(8_000, least=1), "pattern": r"\S"}},
        "required": ["cid", "text"],
    },
    "Me": thing(
        name=TEXT, display_name=TEXT, role=TEXT, has_password=FLAG, by_provider=FLAG, can_run_commands=FLAG
    ),
    "Password": {
        "type": "object",
        "properties": {"password": words(1_000, least=10)},
        "required": ["password"],
    },
    "Success": maybe(thing(success=FLAG), result=TEXT),
    "Overview": thing(calls=NUMBER, active=NUMBER, waiting=NUMBER, workers=NUMBER, at=TIME),
    "Session": _SESSION,
    "Sessions": thing(sessions=listed(ref("Session")), next=MAYBE_TEXT),
    "Lines": maybe(thing(messages=listed(_LINE), before=MAYBE_TEXT), dividers=listed(THING)),
    "Timeline": thing(
        turns=NUMBER,
        limit=MAYBE_NUMBER,
        points=listed(THING),
        compactions=listed(THING),
        flushes=listed(THING),
    ),
    "Compactions": thing(
        compactions=listed(
            thing(id=ID, kind=TEXT, active=FLAG, can_undo=FLAG, undo_reason=MAYBE_TEXT, can_restore=FLAG)
        ),
        before=MAYBE_TEXT,
        failed=listed(THING),
    ),
    "ContextAudit": thing(calls=listed(THING), before=MAYBE_TEXT),
    **SESSION_SCHEMAS,
    **WORK_SCHEMAS,
    **ALERTS_SCHEMAS,
    **OPERATOR_SCHEMAS,
    **MONEY_SCHEMAS,
    **HOUSE_SCHEMAS,
}
