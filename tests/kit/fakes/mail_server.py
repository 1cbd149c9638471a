"""A small SMTP server on loopback that checks the order of commands and misbehaves as a test tells it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import email
import email.policy
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email.message import EmailMessage


@dataclass(slots=True, kw_only=True)
class MailServer:
    """The state of the fake mail server: its port, what it demands, and the letters received."""

    port: int = 0
    login: tuple[str, str] | None = None
    context: ssl.SSLContext | None = None
    """Context for STARTTLS; if set, the server accepts a login and a letter only after STARTTLS."""
    replies: dict[str, list[str]] = field(default_factory=dict)
    """Next answers to a command (`MAIL`, `RCPT`, `DATA`, `.`) instead of the usual ones.

    "" drops the connection.
    """
    letters: list[EmailMessage] = field(default_factory=list)
    receivers: list[list[str]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        who = f"{self.login[0]}:{self.login[1]}@" if self.login else ""
        return f"smtp://{who}127.0.0.1:{self.port}"

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, ssl.SSLError, asyncio.IncompleteReadError, _Cut):
            await _Talk(self, reader, writer).go()
        writer.close()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()


class _Cut(Exception):
    """Raised to drop the connection."""


class _Talk:
    def __init__(
        self, server: MailServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._server, self._reader, self._writer = server, reader, writer
        self._known = server.login is None
        self._sealed = server.context is None
        self._sender = ""
        self._receivers: list[str] = []

    async def go(self) -> None:
        await self._say("220 fake")
        while line := (await self._reader.readline()).decode("ascii").rstrip("\r\n"):
            verb = line.split(" ")[0].upper()
            if verb == "QUIT":
                await self._say("221 bye")
                break
            await self._heed(verb, line)

    async def _heed(self, verb: str, line: str) -> None:
        usual = "250 ok"
        if verb == "EHLO":
            usual = "250-fake\r\n250 AUTH PLAIN" if self._server.login else "250 fake"
            usual = usual if self._sealed else "250-fake\r\n250 STARTTLS"
        elif verb == "STARTTLS" and self._server.context is not None:
            await self._say("220 go on")
            await self._writer.start_tls(self._server.context)
            self._sealed = True
            return
        elif not self._sealed:
            self._server.faults.append(f"{verb} in the open")
            usual = "530 encrypt first"
        elif verb == "AUTH":
            self._known = self._right(line)
            usual = "235 welcome" if self._known else "535 no"
        elif verb in ("MAIL", "RCPT", "DATA") and not self._known:
            self._server.faults.append(f"{verb} before AUTH")
            usual = "530 login first"
        elif verb == "MAIL":
            self._sender, self._receivers = line, []
        elif verb == "RCPT":
            self._receivers.append(line.partition("<")[2].rstrip(">"))
        elif verb == "DATA":
            usual = "354 go on" if self._sender and self._receivers else "503 out of order"
        elif verb not in ("NOOP", "RSET"):
            usual = "500 what"
        if (await self._answer(verb, usual)).startswith("354"):
            await self._letter()

    async def _letter(self) -> None:
        lines = []
        while (line := await self._reader.readuntil(b"\r\n")) != b".\r\n":
            lines.append(line[1:] if line.startswith(b".") else line)
        letter = email.message_from_bytes(b"".join(lines), policy=email.policy.default)
        assert isinstance(letter, EmailMessage)
        replies = self._server.replies.get(".", [])
        if not replies or replies[0] in ("", "250 ok"):
            # A letter counts as received even if the connection is dropped afterwards.
            self._server.letters.append(letter)
            self._server.receivers.append(self._receivers)
        await self._answer(".", "250 ok")

    def _right(self, line: str) -> bool:
        given = base64.b64decode(line.split(" ")[2]).decode().split("\0")
        return self._server.login == (given[1], given[2])

    async def _answer(self, verb: str, usual: str) -> str:
        told = self._server.replies.get(verb, [])
        reply = told.pop(0) if told else usual
        if not reply:
            raise _Cut
        await self._say(reply)
        return reply

    async def _say(self, line: str) -> None:
        self._writer.write(f"{line}\r\n".encode())
        await self._writer.drain()


@asynccontextmanager
async def mail_server(
    *,
    login: tuple[str, str] | None = None,
    starttls: ssl.SSLContext | None = None,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[MailServer]:
    made = MailServer(login=login, context=starttls)
    server = await asyncio.start_server(made.talk, "127.0.0.1", 0, ssl=tls)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        await server.wait_closed()
