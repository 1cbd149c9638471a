"""A request of each route."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from tests.kit.web.callers import Crowd
from tests.kit.web.event_stream_client import ticket
from tests.kit.web.fixtures import Server, hello
from web.rest.operation import Operation

NOBODY = "00000000-0000-4000-8000-000000000000"


async def request_of(server: Server, one: Operation, people: Crowd) -> tuple[str, dict[str, Any]]:
    session = str(people.visitor.session_public_id)
    thing = people.summary if "compactions/{id}" in one.path else session
    thing = people.file if "attachments" in one.path else thing
    path = one.path.replace("{id}", "n00000000" if "/memory/" in one.path else thing)
    known = {"operator": NOBODY, "login": NOBODY, "note": NOBODY, "mid": "m1", "kind": "flush", "bot": "7"}
    for name, value in {**known, "version": "1", "server": "files"}.items():
        path = path.replace(f"{{{name}}}", value)
    given = {"session_id": session} if one.names_session else {}
    bodies = {
        "openSession": {"external_id": "ada"},
        "beginImport": {"size": 5, "mark": "a"},
        "startImport": {},
        "switchImportSummaries": {"on": True},
        **{key: {"text": "Hello"} for key in ("writeMessage", "editMessage")},
        "runCommand": {"session_id": session},
        "nameConversation": {"title": "x"},
        "changeNote": {"text": "x"},
        "setPassword": {},
        "greet": hello(),
        "sendFrames": {"site": "default", "frames": [{"t": "ping", "n": 1}]},
        "recover": {"code": "AAAA-AAAA-AAAA"},
        "compactNow": {},
        "flushNow": {},
        "moveHandover": {"action": "return"},
        "inviteOperator": {"name": "", "role": "viewer"},
        "changeOperator": {"version": 1},
        "reply": {"cid": "c1", "text": "x"},
        **{key: {"ids": [1]} for key in ("retryJobs", "cancelJobs")},
        **{
            key: {"parts": [{"session": session, "turn": 1, "part": 0}]}
            for key in ("markArrived", "sendAgain")
        },
        "correctNote": {"text": "x"},
        "addNote": {"person": str(UUID(int=0)), "text": "x"},
        "erasePerson": {"confirm": "nobody"},
        "holdPerson": {"on": True},
        **{key: {"code": "000000"} for key in ("confirmSecondFactor", "removeSecondFactor")},
        "decidePairing": {"action": "approve", "code": "AAAAAAAA"},
        **{key: {"config": {}} for key in ("changeAgent", "checkAgent")},
        **{key: {"settings": {}} for key in ("changeSite", "checkSite")},
        **{key: {"name": "default"} for key in ("makeAgent", "makeSite")},
        "setDisplayName": {"display_name": "Anna"},
        "setPicture": {"picture": "iVBORw0KGgo="},
        "allowOrigin": {"origin": "https://shop.example"},
    }
    sent: dict[str, Any] = {"params": given}
    if one.name == "greet":
        sent["headers"] = {"Origin": server.url}
    if one.name == "openStream":
        given["ticket"] = (await ticket(server))["ticket"]
    if one.name == "pollFrames":
        given |= {"site": "default", "stream": "a" * 16, "wait": "0"}
    if one.name == "addImportPiece":
        given["start"] = "0"
    if one.takes == "application/octet-stream":
        sent |= {"data": b"words", "headers": {"Content-Type": one.takes}}
    elif one.name in bodies:
        sent["json"] = bodies[one.name]
    path = path.replace("{kind}", "flush").replace("{server}", "none").replace("{version}", "1")
    return path.replace("{name}", "default" if "sites" in path else "help"), sent
