"""Protocols of what services need from outside: models, encoders, tools, clocks and announcements."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol

from shared.core.memory.vectors import Encoded
from shared.core.session.turns import DueJob
from shared.core.values.messages import Block, Image, Message
from shared.core.values.messages import SystemPart as SystemPart
from shared.core.values.messages import ToolSpec as ToolSpec
from shared.core.values.money import Prices as Prices
from shared.core.values.money import Usage as Usage
from shared.core.values.recordings import Recording, SpeechFormat

StorageLimiter = Callable[[], AbstractAsyncContextManager[None]]
"""Limiter of storage errors.

`async with storage_limiter():` turns an unexpected error into StorageUnavailable unless the database was
healthy all the time, so that an update, job or message is not blamed for an outage.
"""
StopReason = Literal["end_turn", "max_tokens", "tool_use", "refusal", "window_exceeded", "stop_sequence"]
"""Reasons why a model ended its answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureContent:
    """Content of an image block, and a description that replaces the image for models without vision."""

    mime: str
    body: bytes
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """Request for one model call; `model` is a name as in `load_card`.

    `cache_at` are indices of at most 3 messages, each the end of a prefix that is equal in later calls.
    `max_output_tokens` limits the answer.
    """

    model: str
    system: tuple[SystemPart, ...]
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    max_output_tokens: int = 8192
    cache_at: tuple[int, ...] = ()
    behind_mark: int = 0
    """Number of blocks at the end of the last message of `cache_at` that belong to this call only."""
    cache_long: bool = False
    """True if the provider is to cache the prefix for an hour instead of five minutes."""
    pictures: Mapping[int, PictureContent] = field(default_factory=dict)
    """Pictures of the open turn by attachment id; a model without vision gets their descriptions."""
    json_schema: Mapping[str, Any] | None = None
    """JSON schema of the wanted answer, None for text.

    Providers without schemas ignore it, so the answer is parsed leniently.
    """
    about: tuple[int, int] = (0, 0)
    """Session id and turn of the call; a job has its negative number as turn.

    Used as evidence in learning about models.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReply:
    """Complete answer of a model; `request_id` is the provider's id of the call, empty if it gave none.

    `model` is the name of the model that answered, as `ChatModel.load_card` takes it.
    """

    blocks: tuple[Block, ...]
    usage: Usage
    stop_reason: StopReason
    model: str
    request_id: str = ""
    aborted: tuple[Usage, ...] = ()
    """Tokens of attempts that were paid for but discarded, such as aborted streams."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """Properties of one model.

    `window` and `max_output` are in tokens; `window_known` is False if the window is a guess. `prices` is
    None if unknown. `capabilities` contains some of cache, tools, thinking, count_tokens, json and images.
    """

    name: str
    window: int
    max_output: int
    window_known: bool
    prices: Prices | None
    capabilities: frozenset[str] = field(default_factory=frozenset)
    offline: bool = False
    """True for the program's own model, which answers without a provider."""
    callable_tools: frozenset[str] | None = None
    """Names of the tools that the model can call; None for all."""
    token_factor: float = 1.10
    """Factor from the bundled vocabulary's token count to the model's, before calibration."""


OnText = Callable[[int, str], Awaitable[None]]
"""Callback `on_text(attempt, piece)` for each piece of the answer.

A higher attempt discards earlier pieces.
"""


class ChatModel(Protocol):
    """Chat models of all configured providers, selected by `ModelRequest.model`."""

    async def load_card(self, model: str) -> ModelCard:
        """Return window, prices and capabilities of a model by its name; never raises.

        An unknown model gets a window of 8,192 tokens that is marked as guessed.
        """
        ...

    async def reply(self, request: ModelRequest, *, on_text: OnText | None = None) -> ModelReply:
        """Return the complete answer; `on_text`, unless None, gets it piece by piece while it is written.

        Retries temporary errors itself. Raises only subclasses of ModelError, after the retries.
        """
        ...

    async def count_tokens(self, request: ModelRequest) -> int | None:
        """Return the provider's token count for a request, made before it is sent; None if it cannot be
        counted.
        """
        ...

    async def close(self) -> None:
        """Close all connections to the provider."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """Result of a transcription; `seconds` is the length that the service measured, None if it states
    none.
    """

    text: str
    seconds: float | None = None


class Transcriber(Protocol):
    """Service that turns recordings of speech into text."""

    @property
    def model(self) -> str:
        """Name of the model, for the record of costs."""
        ...

    async def transcribe(
        self, recording: Recording, *, language: str = "", session: int | None = None
    ) -> Transcript:
        """Return the transcript of a recording. Raises only subclasses of ModelError.

        `language` is a guess such as `de`, empty for none. An error counts for other sessions than `session`
        only after it occurred in three of them; `session` is None outside of a session.
        """
        ...


class Speaker(Protocol):
    """Service that turns texts into spoken audio."""

    @property
    def model(self) -> str:
        """Name of the model, for the record of costs."""
        ...

    async def speak(self, words: str, *, form: SpeechFormat, session: int | None = None) -> bytes:
        """Return the bytes of a text read aloud, in the format `form`. Raises only subclasses of ModelError.

        An error counts for other sessions than `session` only after it occurred in three of them; `session`
        is None outside of a session.
        """
        ...


class Reranker(Protocol):
    """Service that orders passages by how well they answer a question."""

    async def rank(
        self, question: str, passages: Sequence[str], *, session: int | None = None
    ) -> Sequence[int] | None:
        """Return indices of `passages`, the best first; None if there is no answer in time. Never raises.

        Indices may be missing. An error counts for other sessions than `session` only after it occurred in
        three of them; `session` is None outside of a session.
        """
        ...

    async def close(self) -> None:
        """Close all connections to the service."""
        ...


class Encoder(Protocol):
    """Service that turns texts into vectors of meaning."""

    async def encode(
        self, texts: Sequence[str], *, question: bool = False, session: int | None = None
    ) -> Encoded:
        """Return the packed vector of each text, in order, and the name of the model even without texts.

        `question` True encodes the texts as questions. Raises EncoderEnded if the encoder cannot handle these
        texts, ModelUnavailable for other failures. An error counts for other sessions than `session` only
        after it occurred in three of them; `session` is None outside of a session.
        """
        ...

    async def close(self) -> None:
        """Close all connections to the service."""
        ...


class Clock(Protocol):
    """Source of the current time."""

    def now(self) -> datetime:
        """Return the current time of this machine, with a time zone.

        Deadlines that people were promised use the clock of Postgres instead.
        """
        ...


class TokenCounter(Protocol):
    """Estimator of token counts that works without a provider."""

    def count_tokens(self, text: str) -> int:
        """Return the estimated tokens of a text, before the factor of a model is applied; never raises."""
        ...


class Doorbell(Protocol):
    """Announcer of due jobs to workers; a lost announcement only delays a job, since a sweep announces it
    again.
    """

    async def ring(self, job: DueJob) -> bool:
        """Announce a due job to the workers; return False if no worker heard it. Never raises."""
        ...


ALL_PROCESSES = 0
"""Channel of announcements that every process hears."""
DASHBOARD = -1
"""Channel of announcements for operators' pages; only they subscribe to it."""
TURN_DUE: Mapping[str, Any] = {"t": "due"}
"""Announcement that a turn may be due; every process then searches for due turns of its channel."""

TYPING: Mapping[str, Any] = {"t": "typing"}
"""Announcement that a person is typing.

On the channel of a session, it is the operator; on the dashboard's, with the public id as `session`, the
visitor.
"""

TELEGRAM_CHAT_MOVED: Mapping[str, Any] = {"t": "moved"}
"""Announcement that an address belongs to another session now; clients then check whether it is theirs."""


class Announcer(Protocol):
    """Sender and receiver of announcements between processes; nothing depends on their arrival."""

    async def announce(self, session_id: int, message: Mapping[str, Any]) -> None:
        """Announce to all processes that the session `session_id` changed; `message` says how by its key `t`.

        `ALL_PROCESSES` and `DASHBOARD` take the place of an id. Never raises; an announcement can be lost.
        """
        ...

    def listen(self) -> AsyncIterator[tuple[int, Mapping[str, Any]]]:
        """Yield pairs of session id and announcement of all subscribed sessions, without end.

        Reconnects after a lost connection; announcements made meanwhile are lost.
        """
        ...

    async def subscribe(self, session_ids: Sequence[int]) -> None:
        """Replace the set of sessions whose announcements `listen` yields."""
        ...


AccessState = Literal["pending", "allowed", "refused"]
"""State of a chat's request for access to a bot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRow:
    """Access of a Telegram chat to a bot; `code` is None once the request for it is decided.

    `owner` is True for the owner of the bot. `told_at` is the time at which the person received the code,
    None before.
    """

    bot_id: int
    chat_id: int
    """Telegram's id of a person, or the negative one of a group."""
    state: AccessState
    owner: bool
    name: str
    username: str
    code: str | None
    asked_at: datetime
    told_at: datetime | None
    decided_by: str


class SealedSecret(Protocol):
    """Encrypted secret, as it is stored."""

    @property
    def key_id(self) -> str:
        """Id of the key that it is encrypted with."""
        ...

    @property
    def data(self) -> bytes:
        """Encrypted bytes."""
        ...


class Sealer(Protocol):
    """Encryption with the secret key of this installation, without decryption."""

    @property
    def key_id(self) -> str:
        """Id of the present key."""
        ...

    def seal(self, plain: bytes, *, about: str) -> SealedSecret:
        """Return the secret encrypted for one purpose; it can be opened only with the same `about`."""
        ...


class Tool(Protocol):
    """Tool that a model can call, as the program runs it."""

    @property
    def spec(self) -> ToolSpec:
        """Name, description and input schema, as models see them."""
        ...

    @property
    def idempotent(self) -> bool:
        """True if the tool can be run again after a crash without harm."""
        ...

    @property
    def timeout_seconds(self) -> float:
        """Seconds after which a run is cancelled."""
        ...

    async def run(self, arguments: Mapping[str, Any], *, context: ToolContext) -> str | ToolOutput:
        """Run the tool and return its result for the model.

        The arguments match the schema. Raises ToolFailed, with a text for the model, if the work cannot be
        done. A tool may also have `output_chars`, the maximum characters of its result; `subject(arguments)`,
        a short text for the person who waits; `server`, the name of its MCP server; and `waits()`, whether an
        administrator must approve it first.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolImage:
    """Picture as a tool returned it, of any size and format."""

    body: bytes
    mime: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFile:
    """File for the person, sent with the answer of the turn.

    A picture has `width` and `height` in pixels, else None.
    """

    name: str
    mime: str
    body: bytes
    width: int | None = None
    height: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOutput:
    """Result of a tool: text and pictures for the model, and files for the person."""

    text: str = ""
    images: tuple[ToolImage, ...] = ()
    """New pictures, still to be stored."""
    kept: tuple[Image, ...] = ()
    """Pictures that are already stored as files of the conversation."""
    files: tuple[ToolFile, ...] = ()


class ToolFailed(Exception):
    """Exception raised by a tool that could not do its work; its text is for the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """Circumstances of a tool call: the session, its person, and the turn in which the model calls it.

    `key` is unique for each call and the same when a call is repeated after a crash. `scope` is the name of
    the agent; `flush_id` is the memory flush that makes the call, and `job_id` its job; both are None in an
    ordinary turn.
    """

    session_id: int
    contact_id: int
    scope: str
    turn: int
    key: str
    call_id: str = ""
    flush_id: int | None = None
    job_id: int | None = None
    through_turn: int | None = None
    epoch: int = 0
    """Epoch of the turn's lease, or of the flush's job, which every write contains."""
    base_turn: int = 0
    """Last turn that a summary has replaced, so that the model does not see its messages."""
    address_id: int | None = None
    channel: str = ""
    group: bool = False
    """True if other people are in the chat; notes from private conversations must not be used then."""
    anonymous: bool = False
    timezone: str | None = None
    shown: tuple[str, ...] = ()
    """Foreign texts that tools have shown in this silent turn; those of an ordinary turn are in its log."""
    agent_config: Mapping[str, Any] = field(default_factory=dict)
