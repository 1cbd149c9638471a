"""Errors that Evertalk raises on purpose.

EvertalkError                     has a code for programs, a sentence and advice for people
├── NotFound                      an operator named an object that does not exist
├── BadInput                      the input cannot be used; nothing was stored
│   ├── EmptyMessage
│   ├── MessageTooLong
│   ├── UnreadableMessage         binary, NUL bytes, broken JSON
│   ├── UnknownMessage
│   ├── CannotEdit                the message is not the last question, or belongs to another person
│   ├── CannotFork                the conversation cannot be copied up to this message
│   ├── BadArguments              a command cannot use its arguments (core/commands/arguments.py)
│   └── UnknownSession
├── SessionMoved                  the person continues in another session; look up which one
├── LeaseLost                     another process owns this turn; our write changed nothing
├── StaleView                     the log's view changed during the work; plan again
├── CapReached                    a spending cap refused; nothing was spent
│   └── HourCapReached            the cap of all anonymous visitors for this hour
├── CapHeld                       running calls hold the rest of the cap; the turn waits for them
├── ContextBudgetExceeded         parts that cannot be dropped do not fit; names the three largest
├── ContradictoryPolicy           settings contradict each other, with their numbers (core/session/policy.py)
│   └── NoRoom                    a model's window has no room for a conversation
├── BadContextConfig              an agent's context settings are invalid (core/context/overrides.py)
├── BadAgentConfig                an agent's row is invalid (shared/config/agents.py)
├── OnHold                        the person's data are on legal hold and cannot be deleted
├── ProcessStopped                the turn has stopped two processes; it is not retried automatically
├── StorageUnavailable            Postgres is away or full; nothing was acknowledged
└── ModelError                    a failure of the provider
    ├── ModelUnavailable          try again later: 5xx, overload, cut stream, silence
    │   └── EncoderEnded          the process of the encoder ended at a text
    ├── ModelBusy                 429 with a time to wait
    ├── ModelRefusedAccount       key, billing or quota: an operator must act, turns wait
    │   └── ModelRedirected       the server redirects requests to another one
    ├── PromptTooLong             the window is smaller than the request; may carry both numbers
    ├── ContentRefused            the provider's content policy refused this request, or the answer
    ├── ModelGaveUp               the provider was busy or failing for ten minutes
    ├── ModelAnswerUnusable       its answers cannot be used, and a retry gives the same
    └── ModelRejectedRequest      any other 400: a fault of our request

Processes, adapters and channels add their own, such as a frame that is too large or a port in use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Self

from shared.core.values.money import Shortage, Usage
from shared.locales import catalogue


class EvertalkError(Exception):
    """Base of all errors that Evertalk raises on purpose, with a code for clients and texts for people.

    `reason` is the text for logs, by default the class's `sentence`. `advice` replaces the advice of the
    class.
    """

    sentence = "Something went wrong."
    """Text for people that says what happened; each class has its own."""
    code = "error"
    advice = "Something went wrong on our side. Your message is kept; please try again."
    """Text for people that says what they can do now."""

    def __init__(self, reason: str = "", *, advice: str | None = None) -> None:
        super().__init__(reason or self.sentence)
        if advice is not None:
            self.advice = advice


class NotFound(EvertalkError):
    """Request of an operator for a person, agent or other object that does not exist."""

    sentence = "What an operator named does not exist."
    code = "not_found"
    advice = "There is nothing of that name."


class ProcessStopped(EvertalkError):
    """End of a turn without an answer, because two processes crashed while they answered it."""

    sentence = "The turn has stopped two processes."
    code = "process_stopped"
    advice = (
        "This message could not be processed: it stopped the program twice. The operator was notified. "
        "Please put it in other words, or send another file; /retry tries it once more."
    )


class BadInput(EvertalkError):
    """Input of a person, operator or client that cannot be used; nothing was stored."""

    sentence = "The input cannot be used."
    code = "bad_input"
    advice = "That could not be read. Please send it again as plain text."
    key = ""
    """Key of the advice in the catalogue `commands`, which has it in every language; empty if it has none."""
    values: Mapping[str, str | int] = MappingProxyType({})

    @classmethod
    def from_key(cls, key: str, **values: str | int) -> Self:
        """Return an error with the advice of `key` in the catalogue `commands`, in English, with `values`
        filled in.

        Key and values are kept, so that a channel can translate the advice.
        """
        made = cls(catalogue("commands", "").say(key, **values))
        made.advice, made.key, made.values = str(made), key, values
        return made


class EmptyMessage(BadInput):
    """Message without text and without files."""

    sentence = "The message has no words."
    code = "empty_message"
    advice = "The message is empty. Type something first."


class MessageTooLong(BadInput):
    """Message with more characters (`chars`) than allowed (`limit`)."""

    sentence = "The message is longer than the limit."
    code = "message_too_long"

    def __init__(self, *, chars: int, limit: int) -> None:
        super().__init__(f"{chars} characters, limit {limit}")
        self.advice = f"The message has {chars:,} characters; {limit:,} is the most. Please split it."


class UnreadableMessage(BadInput):
    """Message whose bytes are not text, such as binary data, NUL bytes or broken JSON."""

    sentence = "The message holds bytes that are not text."
    code = "unreadable_message"


class UnknownMessage(BadInput):
    """Request for a message with an id, `mid`, that the conversation does not have."""

    sentence = "There is no such message in this conversation."
    code = "unknown_message"
    advice = "It may have been erased. Reload the page."

    def __init__(self, mid: str) -> None:
        super().__init__(f"no {mid} here")
        self.mid = mid


class CannotEdit(BadInput):
    """Message that the person may not edit now; `code` says why and selects the advice."""

    sentence = "The message cannot be edited."

    def __init__(self, code: str, *, turn: int = 0) -> None:
        """Make the error for a reason: `edit_busy`, `edit_changed`, `edit_not_last`, `edit_out_of_view` or
        `edit_with_human`; another code raises KeyError.

        `turn` is the newest turn with the message's question, 0 if unknown.
        """
        super().__init__(code)
        self.code = code
        self.turn = turn
        self.advice = _NO_EDIT[code]


_NO_EDIT = {
    "edit_busy": "An answer is still being written. Stop it, or wait for it, then edit.",
    "edit_changed": "This message was edited meanwhile, perhaps in another tab. Look at it, then edit again.",
    "edit_not_last": "Only the last message can be edited. Send a new one instead.",
    "edit_out_of_view": "The assistant no longer sees this message word for word. Send a new one instead.",
    "edit_with_human": "A human of the team takes part in this conversation. Send a new message instead.",
}


class CannotFork(BadInput):
    """Conversation that cannot be copied up to the chosen message; `code` says why and selects the advice."""

    sentence = "A new conversation cannot begin as a copy of this one."

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code
        self.advice = _NO_FORK[code]


_NO_FORK = {
    "fork_busy": "This answer is still being written. Stop it, or wait for it, then fork.",
    "fork_long": "This conversation is too long to be copied. Begin a new one instead.",
    "fork_files": "The files of this conversation are too large to be copied. Begin a new one instead.",
    "fork_many": "These are too many forks for one person. Go on in one of them.",
}


class OnHold(EvertalkError):
    """Refused deletion: the person is on legal hold. Nothing was deleted."""

    sentence = "What is kept of this person must not go just now."
    code = "on_hold"
    advice = "This person is on legal hold, so nothing was deleted. An admin can lift the hold."


class UnknownSession(BadInput):
    """Request for a session that does not exist, or that the caller may not read."""

    sentence = "There is no such session for this caller."
    code = "unknown_session"
    advice = "This conversation was not found. Check its id, or reload the page to begin a new one."


class SessionMoved(EvertalkError):
    """Request for a session whose person continues in another session; look up which one and retry there."""

    sentence = "The conversation continues in another session of the same person."
    code = "session_moved"
    advice = "This conversation goes on elsewhere. Reload the page to see it."


class LeaseLost(EvertalkError):
    """Write of a process that no longer owns the turn, since another one claimed it; nothing was changed."""

    sentence = "Another process owns this turn now."
    code = "fenced"


class StaleView(EvertalkError):
    """Write that was planned for an older state of the log's view; nothing was changed. Plan again."""

    sentence = "The view moved while we worked on it."
    code = "stale_view"
    advice = "The conversation changed meanwhile. Please try again."


class CapReached(EvertalkError):
    """Model call refused because a spending cap of the day has too little left; nothing was spent.

    `scope` is the kind of cap, such as `contact`, `session`, `network` or `total`. `timezone` names the zone
    at whose midnight the cap starts again.
    """

    sentence = "A spending cap is reached."
    code = "cap_reached"

    def __init__(self, *, scope: str, timezone: str = "UTC", shortages: Sequence[Shortage] = ()) -> None:
        super().__init__(f"spending cap of scope {scope!r} reached")
        self.scope = scope
        self.shortages = tuple(shortages)
        """Caps that had too little left, the one with the least room first."""
        what = {
            "contact": "Your spending limit",
            "session": "The spending limit of this conversation",
            "network": "The spending limit of your network",
        }
        self.advice = (
            f"{what.get(scope, 'The spending limit')} for today is reached{_describe_usage(self.shortages)}. "
            f"Your message is kept; please write again after midnight ({timezone}), or ask the operator to "
            "raise the limit. Commands such as /budget work meanwhile."
        )


class HourCapReached(CapReached):
    """Model call refused because all anonymous visitors together have spent their cap of the current hour."""

    sentence = "The hour's budget of anonymous visitors is spent."
    code = "hour_cap_reached"

    def __init__(self, *, scope: str, timezone: str = "UTC", shortages: Sequence[Shortage] = ()) -> None:
        super().__init__(scope=scope, timezone=timezone, shortages=shortages)
        self.advice = (
            f"Visitors have reached the spending limit of one hour{_describe_usage(self.shortages)}. "
            "Your message is kept; please write again in the next hour. "
            "Commands such as /budget work meanwhile."
        )


def cap_reached(scope: str, *, timezone: str, shortages: Sequence[Shortage] = ()) -> CapReached:
    """Return, without raising it, the error for a spent cap: HourCapReached for scope `visitors`, else
    CapReached.

    `scope` may carry an id after a colon, as in `contact:7`; the error keeps only the part before it.
    """
    kind = scope.partition(":")[0]
    made = HourCapReached if kind == "visitors" else CapReached
    return made(scope=kind, timezone=timezone, shortages=shortages)


def _describe_usage(shortages: Sequence[Shortage]) -> str:
    if not shortages:
        return ""
    first = shortages[0]
    used, cap = (f"${micro / 1e6:.2f}" for micro in (first.spent_micro, first.cap_micro))
    return f": {used} of {cap} used; not enough left for an answer"


class CapHeld(EvertalkError):
    """Model call refused because running calls reserve the rest of a spending cap; the turn waits for
    them.
    """

    sentence = "The rest of a spending cap is reserved for calls that are running."
    code = "cap_held"
    advice = (
        "The rest of today's spending limit is set aside for answers that are being written just now. "
        "Your message is kept and will be answered shortly."
    )


BUDGET_WARNING = "budget_warning"
"""Code of the notice, sent once a day, that most of a spending limit is used; it is no error."""
BUDGET_WARNING_ADVICE = (
    "Most of today's spending limit is used. I go on until it is reached; /budget shows how much is left."
)
"""Text of the notice `BUDGET_WARNING`, in English."""


class ContextBudgetExceeded(EvertalkError):
    """Request whose parts that must be kept exceed `hard`, the most tokens that a request may have.

    `largest` has the largest parts as pairs of name and tokens.
    """

    sentence = "What may never be dropped does not fit into the model's window."
    code = "context_budget_exceeded"

    def __init__(self, *, hard: int, largest: Sequence[tuple[str, int]]) -> None:
        parts = ", ".join(f"{name} ({tokens:,} tokens)" for name, tokens in largest)
        super().__init__(f"needs more than {hard} tokens; largest: {parts}")
        self.largest = tuple(largest)
        self.advice = (
            f"This is too much for one answer. The largest parts: {parts}. "
            "Please shorten your message, unpin what you can, or start a new conversation with /new."
        )


class StorageUnavailable(EvertalkError):
    """Failure of the database: it cannot be reached, or it cannot write. Nothing was acknowledged."""

    sentence = "The database cannot be reached or cannot write."
    code = "storage_unavailable"
    advice = "The database does not answer just now. Try again."


class ModelError(EvertalkError):
    """Base of all failures of a model call, whether the provider refused, failed or was silent."""

    sentence = "The model's provider did not answer as it should."
    code = "model_error"
    transient = True
    """True if the same request may succeed later, so that the turn waits for the model and is retried."""
    elsewhere = False
    """True if a fallback model may answer instead."""
    answered = False
    """True if the provider's server responded with the failure, False if it was silent or unreachable."""
    ends_turn = False
    """True if the same request would fail again, so that the turn is not retried."""
    aborted: tuple[Usage, ...] = ()
    """Usage of the failed attempts, to be stored in the ledger."""
    provider: str = ""
    """Host of the provider that responded; empty if none was asked."""
    shown: str | None = None
    """Status and message of a JSON error, as a form may show it; None if there was no response."""

    @property
    def form_reason(self) -> str:
        """Reason to show in a form where an operator may enter any server address.

        It is `shown` if set. Otherwise it is this error's own text, or, if another exception caused it, only
        the name of that exception's class.
        """
        if self.shown is not None:
            return self.shown
        return str(self) if self.__cause__ is None else type(self.__cause__).__name__


class ModelUnavailable(ModelError):
    """Provider that is overloaded, silent or unreachable, or whose stream was cut.

    A later retry may succeed.
    """

    sentence = "The provider is overloaded, silent or unreachable."
    code = "model_unavailable"
    elsewhere = True
    advice = (
        "The model is not reachable just now. Your message is kept; I try again by myself, within half a "
        "minute each time. /stop ends the wait."
    )


class EncoderEnded(ModelUnavailable):
    """Failure of an encoder of texts at one text: its process ended there, or its server answers all other
    texts.

    People never see this error.
    """

    sentence = "The encoder cannot process this text."


class ModelBusy(ModelError):
    """Refusal of the provider, as with status 429, that asks to wait `retry_after_seconds` before a retry."""

    sentence = "The provider asks us to wait."
    code = "model_busy"
    elsewhere = True
    advice = (
        "The model is busy. Your message is kept; I try again by myself, within a minute each time. "
        "/stop ends the wait."
    )

    def __init__(self, reason: str = "", *, retry_after_seconds: float) -> None:
        super().__init__(reason)
        self.retry_after_seconds = retry_after_seconds


class ModelRefusedAccount(ModelError):
    """Refusal of our account by the provider, because of its key, billing or quota; an operator must act."""

    sentence = "The provider refuses our account: key, billing or quota."
    code = "model_refused_account"
    elsewhere = True
    advice = (
        "The assistant's account with its model provider needs attention. The operator was notified; "
        "your message is kept and will be answered when it works again."
    )


class ModelRedirected(ModelRefusedAccount):
    """Redirect to another server by a server of models or tools.

    It was not followed; nothing was sent there.
    """

    sentence = "A server of models or tools sends requests on to another server; nothing was sent there."


class PromptTooLong(ModelError):
    """Refusal of a request that is larger than the model's window.

    `tokens` is the size of the request and `maximum` that of the window; each is None if the provider did not
    report it.
    """

    sentence = "The request is larger than the model's window."
    code = "prompt_too_long"
    transient = False

    def __init__(self, reason: str = "", *, tokens: int | None = None, maximum: int | None = None) -> None:
        super().__init__(reason)
        self.tokens = tokens
        self.maximum = maximum


class ContentRefused(ModelError):
    """Refusal of this request, or of the answer to it, by the provider's rules on content."""

    sentence = "The provider's rules on content forbid this request, or the answer to it."
    code = "content_refused"
    transient = False
    advice = (
        "The model's provider does not let this be answered: something in it, or in the answer, is against "
        "its rules on content. Please put it in other words. If it was not your newest message, /new starts "
        "a conversation without the older ones."
    )


class ModelAnswerUnusable(ModelError):
    """Answer of the model's server that cannot be used: it is empty, endless, or not valid JSON, for
    example.
    """

    sentence = "The model answered several times what cannot be used."
    code = "model_answer_unusable"
    transient = False
    elsewhere = True
    ends_turn = True
    shown = "The server answered, but not as a model server does."
    advice = (
        "The model answered, but its answer could not be used. Your message is kept; /retry asks again. "
        "The operator was notified."
    )

    def __init__(self, reason: str = "", *, hint: str = "", may_repeat: bool = True) -> None:
        super().__init__(reason)
        self.may_repeat = may_repeat
        """True if another attempt may help; False after an endless answer, since another would
        cost too much.
        """
        self.hint = hint
        """Sentence that the model reads before the next call; empty if there is none."""


class ModelGaveUp(ModelError):
    """End of a turn whose provider was busy or failing for ten minutes; only `/retry` asks it again."""

    sentence = "The provider answered for ten minutes that it cannot answer now."
    code = "model_gave_up"
    transient = False
    advice = (
        "The model has been busy or failing for ten minutes. Your message is kept; /retry asks again. "
        "The operator was notified."
    )


class ModelRejectedRequest(ModelError):
    """Rejection of our request as invalid, for a reason that no other error names; a retry fails again."""

    sentence = "The provider found our request invalid."
    code = "model_rejected_request"
    transient = False
    elsewhere = True
    ends_turn = True
    advice = (
        "The model's server refuses this request. Your message is kept; /retry asks again. "
        "The operator was notified."
    )
