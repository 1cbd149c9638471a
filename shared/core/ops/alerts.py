"""Alerts for operators: kinds, typed facts, and texts made of them.

Facts are numbers, ids, and names that operators chose, never text of a person.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias

Kind: TypeAlias = Literal[
    "spend_80", "spend_100", "provider_refused", "breaker_open", "dead_job", "uncertain_delivery",
    "disk_low", "handover_waiting", "no_worker", "no_backup", "agent_cap_80", "agent_cap_100",
    "window_narrowed", "stuck_turn", "no_summaries", "spend_source", "database_lost", "model_rejects",
    "duty_late",
    "process_stopped", "test",
]  # fmt: skip
"""Kinds of problems that operators are alerted to."""
Phase: TypeAlias = Literal["opened", "ended"]
"""Occasions of a message: the problem began, or it ended."""
Channel: TypeAlias = Literal["telegram", "webhook", "email"]
"""Channels by which alerts are sent."""
Detail: TypeAlias = Mapping[str, int | str]
"""Facts of an alert by name; values are numbers, ids and names, never texts of people."""

KINDS: Mapping[Kind, tuple[str, str]] = {
    "spend_80": (
        "80 % of today's budget is used",
        "At 100 %, all answers stop until midnight; EVERTALK_CAP_TOTAL_PER_DAY_USD raises the cap.",
    ),
    "spend_100": (
        "Today's budget is used up",
        "No paid model answers until midnight, or until EVERTALK_CAP_TOTAL_PER_DAY_USD is raised.",
    ),
    "agent_cap_80": (
        "80 % of an agent's cap is used",
        "At 100 %, answers under this cap stop until midnight; the page Agents has the agent's caps.",
    ),
    "agent_cap_100": (
        "An agent's cap is used up",
        "Answers under this cap stop until midnight, or until it is raised on the page Agents.",
    ),
    "spend_source": (
        "One source has used a third of today's budget",
        "The page Costs, by person, shows who. A network's visitors share EVERTALK_CAP_NETWORK_PER_DAY_USD.",
    ),
    "provider_refused": (
        "The model provider refuses the account",
        "Check the account's key, credit and limits. Turns wait and resume automatically.",
    ),
    "breaker_open": (
        "The model provider does not answer",
        "No action is needed: it is retried every ten seconds. Check the provider's status page.",
    ),
    "window_narrowed": (
        "A model accepts smaller requests than it should",
        "If that is its context window, set it in a models file.",
    ),
    "no_summaries": (
        "No model can write a summary",
        "Excerpts stand in. The page Jobs says why; EVERTALK_SUMMARY_MODEL can name another model.",
    ),
    "dead_job": (
        "Background jobs failed",
        "The page Jobs shows the reason; failed jobs wait until you retry them.",
    ),
    "uncertain_delivery": (
        "An answer may not have been delivered",
        "The person can request it again. The page Delivery problems shows which answer it is.",
    ),
    "disk_low": (
        "The disk is nearly full",
        "Free some space: without it, messages cannot be stored or answered.",
    ),
    "handover_waiting": (
        "A person is still waiting for a human",
        "Open the conversation and take it before the assistant resumes.",
    ),
    "no_worker": (
        "No worker is running",
        "Summaries and memory wait. Start the worker, or check its log for why it ended.",
    ),
    "no_backup": (
        "The daily backup fails",
        "./evertalk doctor says why; earlier backups are kept. ./evertalk backup makes one now.",
    ),
    "duty_late": (
        "A background task keeps failing",
        "The page Jobs has its last error. The other tasks continue; this one is retried each period.",
    ),
    "stuck_turn": (
        "A message waits for a process that lost track of it",
        "Restart that process; another one resumes the turn. Report what ./evertalk doctor says.",
    ),
    "database_lost": (
        "The database takes no writes",
        "Messages cannot be stored or answered. ./evertalk doctor shows PostgreSQL's message.",
    ),
    "model_rejects": (
        "A model refuses requests, or its answers cannot be used",
        "People see that there is no answer. EVERTALK_FALLBACK_MODELS can name another model.",
    ),
    "process_stopped": (
        "A process hung or crashed",
        "Its log names the place in the code. The same work is retried once, then cancelled.",
    ),
    "test": ("A test of the alerts", "This is only a test: an operator pressed Send a test."),
}
"""Headline and advice, in English, by the kind of alert."""

PERMITTED: Mapping[Kind, frozenset[str]] = {
    "spend_80": frozenset({"used_micro", "cap_micro"}),
    "spend_100": frozenset({"used_micro", "cap_micro"}),
    "agent_cap_80": frozenset({"agent", "count"}),
    "agent_cap_100": frozenset({"agent", "count"}),
    "spend_source": frozenset({"source", "used_micro", "cap_micro"}),
    "provider_refused": frozenset({"provider", "sessions"}),
    "breaker_open": frozenset({"provider", "sessions"}),
    "window_narrowed": frozenset({"provider", "model", "window", "expected", "sessions"}),
    "no_summaries": frozenset({"sessions"}),
    "dead_job": frozenset({"count", "job"}),
    "uncertain_delivery": frozenset({"count"}),
    "disk_low": frozenset({"free_bytes", "total_bytes"}),
    "handover_waiting": frozenset({"session", "minutes"}),
    "no_worker": frozenset({"seconds"}),
    "no_backup": frozenset(),
    "duty_late": frozenset({"duty"}),
    "stuck_turn": frozenset({"count"}),
    "database_lost": frozenset({"state", "seconds"}),
    "model_rejects": frozenset({"provider", "model", "session", "sessions", "code", "wording", "count"}),
    "process_stopped": frozenset({"cause", "process", "work", "session", "turn", "count"}),
    "test": frozenset(),
}
"""Names of the facts that an alert of each kind may contain; no others are stored."""

MOST_TRIES = 12
"""Most attempts to send one alert to one target."""
EXPIRES_HOURS = 24
"""Hours after which an undelivered alert is no longer sent; the dashboard still shows it."""
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 5.0, 900.0
_FACT = re.compile(r"[A-Za-z0-9_.:\[\]-]{1,255}")
_WORDING = re.compile(r"[^\x00-\x1f\x7f]{0,255}")
"""Wording of a model server, without secrets and quotations; the only fact that is free text."""
_SESSIONS = re.compile(r"[0-9a-f-]{36}(?:, [0-9a-f-]{36}){0,4}")
"""Public ids of up to five sessions that met the faults of a provider or a model."""
_FORMS = {"wording": _WORDING, "sessions": _SESSIONS}

ADVICE: Mapping[str, str] = {
    "no_connection": "No server answers at that address. Check the address and the network.",
    "timeout": "No answer in time. Check the address and the network.",
    "tls": "The encrypted connection failed. Check the certificate there.",
    "tls_expired": "The certificate there has expired. Renew it, and check the clock here.",
    "tls_early": "The certificate there is not valid yet. Check the clock here.",
    "tls_host": "The certificate there is for another host name. Use a name that it contains.",
    "tls_authority": "The certificate there is signed by an authority that this machine does not trust.",
    "address_refused": "Only https addresses on the internet, or this machine, are allowed.",
    "login_refused": "The mail server refuses the name or the password in EVERTALK_ALERT_SMTP_URL.",
    "address_of_mail": (
        "The mail server refuses an address: see EVERTALK_ALERT_EMAIL_FROM and EVERTALK_ALERT_EMAIL_TO."
    ),
    "mail_refused": "The mail server refuses the message.",
    "chat_gone": "The bot cannot write to this chat. Write to it there once, and check the number.",
    "telegram_refused": "Telegram refuses the message.",
    "lost_connection": "The connection broke: it may have been delivered. It is not sent twice.",
    "cut_off": "The process ended: it may have been delivered. It is not sent twice.",
    "expired": "It could not be sent for a day. If it is for Telegram, check the bot.",
    "not_configured": "This target is not set up any more.",
    "never_told": "The start could not be sent, so the end is not sent either.",
    "tries": "It failed too often.",
}
"""Advice by code of a failed delivery; codes such as `http_500` have advice made by `advice_of`."""


class BadAlert(ValueError):
    """Fact that an alert of this kind may not contain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """Problem that operators are notified of, from its start to its end (`ended_at` None while it lasts).

    `key` distinguishes problems of the same kind, such as two providers.
    """

    public_id: str
    kind: Kind
    key: str
    detail: Detail
    opened_at: datetime
    ended_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """Time in which the database takes no writes; its alert is kept in memory, since it cannot be stored."""

    public_id: str
    opened_at: datetime
    detail: Detail

    def build_sending(self, target: str, *, attempt: int) -> Sending:
        """Return the message about the outage to one target, to be sent by the caller.

        Its key and text are the same at every attempt.
        """
        alert = Alert(
            public_id=self.public_id, kind="database_lost", key="", detail=self.detail,
            opened_at=self.opened_at,
        )  # fmt: skip
        return Sending(
            send_id=0, send_key=self.build_key(target), target=target, phase="opened",
            attempt=attempt, alert=alert,
        )  # fmt: skip

    def build_key(self, target: str) -> str:
        """Return the key of the message to one target, in the form of a UUID, made from outage and target.

        It is the same at every attempt.
        """
        digits = hashlib.sha256(f"{self.public_id} {target}".encode()).hexdigest()
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:32]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """Message about an alert to one target, claimed by this process for an attempt.

    `send_key` is the same at every attempt, so that a receiver can recognise repetitions.
    """

    send_id: int
    send_key: str
    target: str
    phase: Phase
    attempt: int
    alert: Alert


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """Outcome of a send: the target has accepted the message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotSent:
    """Outcome of a send: failed, so it may be retried.

    An HTTP receiver may have it nevertheless, such as after a timeout; it knows repetitions by the key.
    `code` is explained by `advice_of`; `retry_after` is the receiver's wish in seconds, None if it has none.
    """

    code: str
    retry_after: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRefused:
    """Outcome of a send: refused for good, so it is not retried; `code` is explained by `advice_of`."""

    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertOutcomeUnknown:
    """Outcome of a send: the alert may have arrived, so it is not sent again; `code` is explained by
    `advice_of`.
    """

    code: str


Outcome: TypeAlias = Sent | NotSent | AlertRefused | AlertOutcomeUnknown


def channel_of(target: str) -> str:
    """Return the channel of a target, such as `telegram` for `telegram:-100…`."""
    return target.partition(":")[0]


def check_detail(kind: Kind, detail: Mapping[str, Any]) -> Detail:
    """Return a copy of the facts if an alert of this kind may contain them.

    Raises BadAlert for a name that the kind does not permit, and for a value that is no number, name or id.
    """
    for name, value in detail.items():
        if name not in PERMITTED[kind]:
            raise BadAlert(f"{kind} has no fact {name!r}")
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise BadAlert(f"{name} of {kind} is neither a number nor a name")
        allowed = _FORMS.get(name, _FACT)
        if isinstance(value, str) and not allowed.fullmatch(value):
            raise BadAlert(f"{name} of {kind} is no name and no id")
    return dict(detail)


def wait_seconds(attempt: int) -> float:
    """Return the seconds to wait after the failed attempt number `attempt`, from 1.

    It is 5 after the first, doubled each time, at most 900.
    """
    return min(_FIRST_WAIT_SECONDS * 2.0 ** max(0, attempt - 1), _LONGEST_WAIT_SECONDS)


def advice_of(code: str) -> str:
    """Return advice in English for operators on a failed delivery by its code; empty for an unknown code."""
    if code.startswith("http_"):
        return f"The receiver answered {code[5:]}; it must answer 2xx."
    if code.startswith("smtp_"):
        return f"The mail server answered {code[5:]}."
    return ADVICE.get(code, "")


def headline(alert: Alert, phase: Phase) -> str:
    """Return the English title of an alert; for its end, with `Over: ` before it."""
    title = KINDS[alert.kind][0]
    return f"Over: {title[0].lower()}{title[1:]}" if phase == "ended" else title


def facts(alert: Alert) -> str:
    """Return the facts of an alert as one English line; empty if there are none."""
    return _facts(alert.kind, alert.detail)


def message(alert: Alert, phase: Phase, *, dashboard_url: str) -> str:
    """Return the English text of an alert for Telegram or mail: title, facts, advice (at its start) and a
    link.
    """
    lines = [headline(alert, phase), facts(alert)]
    if phase == "opened":
        lines += ["", KINDS[alert.kind][1]]
    lines += ["", _link(alert, dashboard_url)]
    return "\n".join(line for at, line in enumerate(lines) if line or at > 1)


def payload(sending: Sending, *, dashboard_url: str) -> bytes:
    """Return the JSON body of a webhook in UTF-8; all attempts have the same bytes."""
    alert = sending.alert
    told = {
        "type": "alert.opened" if sending.phase == "opened" else "alert.ended",
        "id": sending.send_key,
        "alert": {
            "id": alert.public_id,
            "kind": alert.kind,
            "key": alert.key,
            "opened_at": _iso(alert.opened_at),
            "ended_at": _iso(alert.ended_at) if sending.phase == "ended" and alert.ended_at else None,
            "detail": dict(alert.detail),
        },
        "title": headline(alert, sending.phase),
        "text": facts(alert),
        "advice": KINDS[alert.kind][1] if sending.phase == "opened" else "",
        "url": _link(alert, dashboard_url),
    }
    return json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode()


def signature(secret: str, timestamp: int, body: bytes) -> str:
    """Return `v1=` and the HMAC-SHA256, in hexadecimal digits, of timestamp, dot and body of a webhook.

    `timestamp` is Unix time in seconds.
    """
    digest = hmac.new(secret.encode(), f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()
    return f"v1={digest}"


def _facts(kind: Kind, detail: Detail) -> str:
    def whole(name: str) -> int:
        value = detail.get(name, 0)
        return value if isinstance(value, int) else 0

    def word(name: str) -> str:
        return str(detail.get(name, ""))

    return _FACTS[kind](whole, word)


_Facts: TypeAlias = Callable[[Callable[[str], int], Callable[[str], str]], str]
"""Function that writes an alert's facts as text; its arguments return a fact by name, as a number or as a
word.
"""


def _spent(whole: Callable[[str], int], _: Callable[[str], str]) -> str:
    return f"{_usd(whole('used_micro'))} of {_usd(whole('cap_micro'))}"


def _caps_of_agent(whole: Callable[[str], int], word: Callable[[str], str]) -> str:
    return f"{whole('count')} × {word('agent')}, people and sessions"


_FACTS: Mapping[Kind, _Facts] = {
    "spend_80": _spent,
    "spend_100": _spent,
    "spend_source": lambda whole, word: f"{word('source')}: {_spent(whole, word)}",
    "agent_cap_80": _caps_of_agent,
    "agent_cap_100": _caps_of_agent,
    "provider_refused": lambda _, word: _with_sessions(word("provider"), word),
    "breaker_open": lambda _, word: _with_sessions(word("provider"), word),
    "window_narrowed": lambda whole, word: _with_sessions(
        f"{word('model')}: {whole('window'):,} of {whole('expected'):,} tokens", word
    ),
    "dead_job": lambda whole, word: f"{whole('count')} × {word('job')}",
    "uncertain_delivery": lambda whole, _: f"{whole('count')} in the last 24 hours",
    "disk_low": lambda whole, _: (
        f"{whole('free_bytes') / 2**30:.1f} GiB of {whole('total_bytes') / 2**30:.1f} GiB are free"
    ),
    "handover_waiting": lambda whole, _: f"for more than {whole('minutes')} minutes",
    "no_worker": lambda whole, _: f"for more than {whole('seconds')} seconds",
    "duty_late": lambda _, word: word("duty"),
    "stuck_turn": lambda whole, _: f"{whole('count')} in all",
    "database_lost": lambda whole, word: f"{word('state')}, for more than {whole('seconds')} seconds",
    "model_rejects": lambda _, word: _with_sessions(
        f"{word('model')} at {word('provider')}: {word('wording') or word('code')}", word
    ),
    "no_summaries": lambda _, word: f"conversations {word('sessions')}" if word("sessions") else "",
    "process_stopped": lambda whole, word: _describe_stop(whole, word),
    "no_backup": lambda *_: "",
    "test": lambda *_: "",
}


def _with_sessions(fact: str, word: Callable[[str], str]) -> str:
    """Return a fact followed by the ids of its conversations in parentheses, if there are any."""
    sessions = word("sessions")
    return f"{fact} (conversations {sessions})" if sessions else fact


def _describe_stop(whole: Callable[[str], int], word: Callable[[str], str]) -> str:
    """Return process, cause, work and count of a crash, such as `web: stood still, turn 7, 2 ×`.

    `whole` and `word` return a fact by name, as a number or as a word.
    """
    work = f"turn {whole('turn')}" if whole("turn") else word("work")
    return f"{word('process')}: {word('cause').replace('_', ' ')}, {work}, {whole('count')} ×"


def _link(alert: Alert, dashboard_url: str) -> str:
    session = alert.detail.get("session")
    return f"{dashboard_url}/sessions/{session}" if session else f"{dashboard_url}/alerts"


def _usd(micro: int) -> str:
    return f"${micro / 1_000_000:,.2f}"


def _iso(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")
