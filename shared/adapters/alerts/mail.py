"""Sender of alerts by mail over SMTP.

The connection is encrypted except on this machine, and a mail is never sent again if the outcome is unknown.
"""

from __future__ import annotations

import asyncio
import contextlib
import smtplib
import ssl
from collections.abc import Sequence
from email.message import EmailMessage
from email.utils import format_datetime
from urllib.parse import unquote, urlsplit

import structlog

from shared.adapters.alerts.post import find_tls_code
from shared.core.ops.alerts import (
    AlertOutcomeUnknown,
    AlertRefused,
    NotSent,
    Outcome,
    Sending,
    Sent,
    headline,
    message,
)
from shared.core.tools.web_address import is_this_machine

log = structlog.get_logger(__name__)

SECONDS = 20.0
"""Maximum seconds of each network operation, after which the sending thread ends."""
WHOLE_SECONDS = 90.0
"""Seconds that sending a mail may take in all."""
_PORTS = {"smtp": 587, "smtps": 465}


class AlertMail:
    """Mail channel of alerts: one SMTP server and one message to all receivers.

    `context` replaces the default TLS context; tests pass one that trusts their certificate.
    """

    def __init__(
        self,
        url: str,
        *,
        sender: str,
        receivers: Sequence[str],
        dashboard_url: str,
        context: ssl.SSLContext | None = None,
    ) -> None:
        parts = urlsplit(url)
        self._tls = parts.scheme == "smtps"
        self._host = parts.hostname or ""
        self._port = parts.port or _PORTS[parts.scheme]
        self._name, self._password = unquote(parts.username or ""), unquote(parts.password or "")
        self._sender = sender
        self._receivers = tuple(receivers)
        self._dashboard_url = dashboard_url
        self._context = context

    async def send(self, sending: Sending) -> Outcome:
        """Send an alert to all receivers and return the outcome.

        `AlertOutcomeUnknown` means that the server did not confirm the message after DATA, or that sending
        took longer than WHOLE_SECONDS; other failures are `NotSent` or `AlertRefused`.
        """
        try:
            async with asyncio.timeout(WHOLE_SECONDS):
                return await asyncio.to_thread(self._send, self._letter(sending))
        except TimeoutError:
            return AlertOutcomeUnknown(code="lost_connection")

    def _letter(self, sending: Sending) -> bytes:
        alert = sending.alert
        letter = EmailMessage()
        letter["Subject"] = f"[Evertalk] {headline(alert, sending.phase)}"
        letter["From"] = self._sender
        letter["To"] = ", ".join(self._receivers)
        letter["Date"] = format_datetime(alert.ended_at or alert.opened_at)
        letter["Message-ID"] = f"<{sending.send_key}@{self._sender.rpartition('@')[2]}>"
        letter["Auto-Submitted"] = "auto-generated"
        letter.set_content(message(alert, sending.phase, dashboard_url=self._dashboard_url))
        return letter.as_bytes().replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")

    def _send(self, letter: bytes) -> Outcome:
        try:
            server = self._connect()
        except smtplib.SMTPAuthenticationError:
            return AlertRefused(code="login_refused")
        except (ssl.SSLError, smtplib.SMTPNotSupportedError) as error:
            return NotSent(code=find_tls_code(error))
        except smtplib.SMTPResponseException as error:
            return NotSent(code=f"smtp_{error.smtp_code}")
        except TimeoutError:
            return NotSent(code="timeout")
        except (OSError, smtplib.SMTPException) as error:
            log.info("alert_mail_failed", error=type(error).__name__)
            return NotSent(code="no_connection")
        try:
            return self._hand_over(server, letter)
        finally:
            with contextlib.suppress(OSError, smtplib.SMTPException):
                server.quit()
            server.close()

    def _connect(self) -> smtplib.SMTP:
        context = self._context or ssl.create_default_context()
        if self._tls:
            server: smtplib.SMTP = smtplib.SMTP_SSL(self._host, self._port, timeout=SECONDS, context=context)
        else:
            server = smtplib.SMTP(self._host, self._port, timeout=SECONDS)
        try:
            server.ehlo_or_helo_if_needed()
            if not self._tls and (server.has_extn("starttls") or not is_this_machine(self._host)):
                server.starttls(context=context)
                server.ehlo()
            if self._name:
                server.login(self._name, self._password)
        except BaseException:
            server.close()
            raise
        return server

    def _hand_over(self, server: smtplib.SMTP, letter: bytes) -> Outcome:
        """Send the mail on an open connection, and return the outcome.

        Before DATA a lost connection is `NotSent`; after it, `AlertOutcomeUnknown`.
        """
        try:
            refused = _judge_code(server.mail(self._sender)[0])
            for receiver in self._receivers:
                refused = refused or _judge_code(server.rcpt(receiver)[0])
            if refused is not None:
                return refused
            code, _ = server.docmd("DATA")
            if code != 354:
                return _judge_code(code) or NotSent(code=f"smtp_{code}")
        except TimeoutError:
            return NotSent(code="timeout")
        except (OSError, smtplib.SMTPException):
            return NotSent(code="no_connection")
        try:
            server.send(_escape_dots(letter))
            code, _ = server.getreply()
        except (OSError, smtplib.SMTPException):
            return AlertOutcomeUnknown(code="lost_connection")
        if 200 <= code < 300:
            return Sent()
        return AlertRefused(code="mail_refused") if code >= 500 else NotSent(code=f"smtp_{code}")


def _escape_dots(letter: bytes) -> bytes:
    """Double each dot at the start of a line, and append the final dot, as SMTP requires."""
    body = letter if letter.endswith(b"\r\n") else letter + b"\r\n"
    body = (b"." + body if body.startswith(b".") else body).replace(b"\r\n.", b"\r\n..")
    return body + b".\r\n"


def _judge_code(code: int) -> Outcome | None:
    """Return None for an SMTP code that means success, `AlertRefused` from 500 on, else `NotSent`."""
    if 200 <= code < 300:
        return None
    return AlertRefused(code="address_of_mail") if code >= 500 else NotSent(code=f"smtp_{code}")
