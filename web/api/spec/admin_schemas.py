"""What the pages that keep the house send and take: memory, people, pairing, agents, sites, settings."""

from __future__ import annotations

from shared.core.context.memory import NOTE_KINDS
from web.api.spec.shapes import (
    FLAG,
    ID,
    MAYBE_NUMBER,
    MAYBE_TEXT,
    NUMBER,
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

_FOUND_NOTE = thing(
    id=ID, short_id=TEXT, etag=TEXT, text=TEXT, kind=TEXT, subject=TEXT, importance=NUMBER, authority=TEXT,
    state=TEXT, agent=TEXT, observed_at=TIME, event_date=MAYBE_TEXT, from_turn=MAYBE_NUMBER,
    session=MAYBE_TEXT, superseded_by=MAYBE_TEXT, undo_until=MAYBE_TEXT, person=THING,
)  # fmt: skip
_PERSON = thing(
    id=ID, name=MAYBE_TEXT, kind=TEXT, anonymous=FLAG, sessions=NUMBER, turns=NUMBER, notes=NUMBER,
    channels=listed(TEXT), cost_micro=MAYBE_NUMBER, last_active_at=MAYBE_TEXT,
)  # fmt: skip

HOUSE_SCHEMAS: dict[str, Schema] = {
    "FoundNote": _FOUND_NOTE,
    "FoundNotes": thing(notes=listed(ref("FoundNote")), person={"type": ["object", "null"]}, next=MAYBE_TEXT),
    "NoteCorrection": form("text", text=words(600, least=1)),
    "NoteWish": form(
        "person",
        "text",
        person=ID,
        text=words(600, least=1),
        agent=words(40),
        event_date=words(10),
        kind={"type": "string", "enum": [*NOTE_KINDS, ""]},
        importance={"type": "integer", "minimum": 1, "maximum": 9},
    ),
    "AddedNote": thing(note={"anyOf": [ref("FoundNote"), {"type": "null"}]}, changed=FLAG, redacted=FLAG),
    "CorrectedNote": thing(note={"anyOf": [ref("FoundNote"), {"type": "null"}]}, changed=FLAG),
    "FoundPerson": _PERSON,
    "People": thing(people=listed(ref("FoundPerson")), next=MAYBE_TEXT),
    "Person": maybe(
        _PERSON,
        places=listed(THING),
        conversations=listed(THING),
        hold={"type": ["object", "null"], "description": "since when nothing of them goes, and by whom"},
    ),
    "HoldWish": form("on", on=FLAG),
    "Held": thing(changed=FLAG),
    "Erasure": thing(counts=THING, erasure={"type": ["object", "null"]}),
    "ErasureWish": form("confirm", confirm=words(300, least=1)),
    "Pairing": thing(requests=listed(THING), bots=listed(TEXT), code_hours=NUMBER),
    "PairingMove": form(
        "action",
        action={"enum": ["approve", "refuse", "block", "allow"]},
        code=words(40, least=1),
        bot=NUMBER,
        chat=NUMBER,
    ),
    "Paired": thing(request=THING),
    "Agents": thing(agents=listed(THING)),
    "Agent": thing(
        name=TEXT, config=THING, version=NUMBER, sessions=NUMBER, problems=listed(TEXT), remarks=listed(TEXT)
    ),
    "AgentSettings": form("config", config=THING),
    "AgentJudged": thing(problems=listed(TEXT), remarks=listed(TEXT), effective={"type": ["object", "null"]}),
    "NewName": form("name", name={**TEXT, "pattern": "^[a-z0-9][a-z0-9_-]{0,39}$"}),
    "Made": thing(name=TEXT),
    "Sites": thing(sites=listed(THING)),
    "SiteWhole": thing(
        name=TEXT, settings=THING, version=NUMBER, secrets=listed(THING), refused=listed(THING), snippet=TEXT
    ),
    "SiteOrigin": form("origin", origin=words(300, least=1)),
    "SiteSettings": form("settings", settings=THING, language=words(40)),
    "SiteJudged": thing(problems=listed(TEXT), look={"type": ["object", "null"]}),
    "SiteSecret": thing(id=TEXT, secret=TEXT),
    "Settings": thing(
        settings=listed(maybe(thing(name=TEXT, secret=FLAG, meaning=TEXT, default=TEXT), value=MAYBE_TEXT))
    ),
    "ErasureBegun": thing(erasure=NUMBER, finished=FLAG, counts=THING),
}
