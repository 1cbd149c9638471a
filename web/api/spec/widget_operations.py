"""The operations that a chat on a page needs beside its socket: the event stream, files, and its site."""

from __future__ import annotations

from web.api.spec.operation import FILE, OF, SITE, V1, Operation, Parameter, some_words
from web.api.spec.shapes import words

_TICKET = Parameter(name="ticket", told="as `POST /api/v1/stream` gave it", schema=words(200))
_FILE_NAME = Parameter(
    name="X-File-Name", told="what the file is called, percent-encoded", schema=words(2_000), place="header"
)

FOR_WIDGETS: tuple[Operation, ...] = (
    Operation(
        method="POST",
        path=f"{V1}/stream",
        name="greet",
        group="stream",
        told="Say hello, where no WebSocket gets through.",
        more="The frame that opens a WebSocket. The ticket opens the event stream once, within seconds.",
        anyone=True,
        body="Hello",
        answers={200: "Ticket"},
        refusals=(401, 409),
    ),
    Operation(
        method="GET",
        path=f"{V1}/stream",
        name="openStream",
        group="stream",
        told="What a WebSocket would send, as server-sent events.",
        more="`Last-Event-ID` resumes after an event. The last event is `close`, with a code.",
        anyone=True,
        parameters=(_TICKET,),
        answers={200: ""},
        refusals=(401,),
        media="text/event-stream",
    ),
    Operation(
        method="POST",
        path=f"{V1}/stream/send",
        name="sendFrames",
        group="stream",
        told="What a WebSocket would be sent: one to 32 frames.",
        more="Each frame is answered here; what comes of it comes over the event stream.",
        visitor=True,
        body="Frames",
        answers={200: "FramesAnswered"},
    ),
    Operation(
        method="GET",
        path=f"{V1}/sites/{{name}}",
        name="describeSite",
        group="stream",
        told="How the chat of a site looks and speaks before anybody said hello.",
        more="A page that may not use the chat gets 403 `foreign_origin`, which it can read.",
        anyone=True,
        parameters=(SITE, some_words("locale", "the reader's language", 64)),
        answers={200: "Site"},
        refusals=(403, 404),
    ),
    Operation(
        method="POST",
        path=f"{V1}/recovery-code",
        name="makeRecoveryCode",
        group="stream",
        told="A code that opens this conversation in another browser.",
        more="Shown once; the one before it opens nothing any more.",
        visitor=True,
        answers={200: "RecoveryCode"},
        refusals=(409,),
    ),
    Operation(
        method="POST",
        path=f"{V1}/recover",
        name="recover",
        group="stream",
        told="Exchange a code for a visitor's token.",
        anyone=True,
        body="Recovery",
        answers={200: "Recovered"},
        refusals=(404,),
    ),
    Operation(
        method="POST",
        path=f"{V1}/uploads",
        name="upload",
        group="files",
        told="Send a picture, a text, a PDF, an office file or an e-book, for a message to refer to.",
        more="The file is the body; what it really is decides, not what it is called. "
        "The same bytes again are the same file.",
        visitor=True,
        scope="messages:write",
        body="File",
        takes="application/octet-stream",
        parameters=(OF, _FILE_NAME),
        answers={200: "Attachment"},
        refusals=(404, 422),
    ),
    Operation(
        method="GET",
        path=f"{V1}/attachments/{{id}}",
        name="download",
        group="files",
        told="A file of the conversation.",
        visitor=True,
        scope="sessions:read",
        role="viewer",
        parameters=(FILE, OF),
        answers={200: ""},
        refusals=(404,),
        media="*/*",
    ),
)
