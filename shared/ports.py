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


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureContent:
    """Content of an image block, and a description that can replace the image."""

    mime: str
    body: bytes
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """Request for one model call.

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
    """Whether the provider shall cache the prefix for an hour instead of five minutes."""
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
    """Complete answer of a model; `request_id` is the provider's id of the call."""

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

    `window` is in tokens; `window_known` is False if it is a guess. `prices` is None if unknown.
    `capabilities` contains some of cache, tools, thinking, count_tokens, json and images.
    """

    name: str
    window: int
    max_output: int
    window_known: bool
    prices: Prices | None
    capabilities: frozenset[str] = field(default_factory=frozenset)
    offline: bool = False
    callable_tools: frozenset[str] | None = None
    """Names of the tools that the model can call; None for all."""
    token_factor: float = 1.10
    """Factor from the bundled vocabulary's token count to the model's, before calibration."""


OnText = Callable[[int, str], Awaitable[None]]
"""Callback `on_text(attempt, piece)` for each piece of the answer.

A higher attempt discards earlier pieces.
"""


class ChatModel(Protocol):
    """Provider of chat models."""

    async def load_card(self, model: str) -> ModelCard:
        """Return window, prices and capabilities of a model; never raises.

        An unknown model gets a window of 8,192 tokens that is marked as guessed.
        """
        ...

    async def reply(self, request: ModelRequest, *, on_text: OnText | None = None) -> ModelReply:
        """Return the complete answer; `on_text`, unless None, gets it piece by piece.

        Retries temporary errors. Raises only `ModelError`s.
        """
        ...

    async def count_tokens(self, request: ModelRequest) -> int | None:
        """Return the provider's token count for a request; None if the provider cannot count."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """Transcript of a recording; `seconds` is its length as the service measured it, None if not stated."""

    text: str
    seconds: float | None = None


class Transcriber(Protocol):
    """Service that transcribes recordings."""

    @property
    def model(self) -> str:
        """Name of the model, for the record of costs."""
        ...

    async def transcribe(
        self, recording: Recording, *, language: str = "", session: int | None = None
    ) -> Transcript:
        """Return the transcript of a recording. Raises only `ModelError`s.

        `language` is a guess such as `de`, empty for none. An error counts for other sessions than `session`
        only after it occurred in three of them; `session` is None outside of a session.
        """
        ...


class Speaker(Protocol):
    """Service that reads texts aloud."""

    @property
    def model(self) -> str:
        """Name of the model, for the record of costs."""
        ...

    async def speak(self, words: str, *, form: SpeechFormat, session: int | None = None) -> bytes:
        """Return a text as spoken audio in `form`. Raises only `ModelError`s.

        An error counts for other sessions than `session` only after it occurred in three of them; `session`
        is None outside of a session.
        """
        ...


class Reranker(Protocol):
    """Service that orders passages by how well they answer a question."""

    async def rank(
        self, question: str, passages: Sequence[str], *, session: int | None = None
    ) -> Sequence[int] | None:
        """Return the indices of passages, the best first; None without an answer in time. Never raises.

        An error counts for other sessions than `session` only after it occurred in three of them.
        """
        ...

    async def close(self) -> None: ...


class Encoder(Protocol):
    """Service that turns texts into vectors of meaning."""

    async def encode(
        self, texts: Sequence[str], *, question: bool = False, session: int | None = None
    ) -> Encoded:
        """Return a vector for each text, and the name of the model even without texts.

        `question` True encodes the texts as questions. Raises EncoderEnded if the encoder cannot handle these
        texts, and ModelUnavailable. An error counts for other sessions than `session` only after it occurred
        in three of them.
        """
        ...

    async def close(self) -> None: ...


class Clock(Protocol):
    """Source of the current time."""

    def now(self) -> datetime:
        """Return the current time with its time zone.

        Deadlines that people were promised use the clock of Postgres instead.
        """
        ...


class TokenCounter(Protocol):
    """Estimator of token counts."""

    def count_tokens(self, text: str) -> int:
        """Return the estimated tokens of a text, before the factor of a model is applied; never raises."""
        ...


class Doorbell(Protocol):
    """Announcer of due jobs."""

    async def ring(self, job: DueJob) -> bool:
        """Announce a due job to the workers; return False if no worker heard it. Never raises."""
        ...


ALL_PROCESSES = 0
"""Channel of announcements that every process hears."""
DASHBOARD = -1
"""Channel of announcements for operators' pages; only they subscribe to it."""
TURN_DUE: Mapping[str, Any] = {"t": "due"}
"""Announcement that a turn waits for a process of another channel."""

TYPING: Mapping[str, Any] = {"t": "typing"}
"""Announcement that a person is typing.

On the channel of a session, it is the operator; on the dashboard's, with the public id as `session`, the
visitor.
"""

TELEGRAM_CHAT_MOVED: Mapping[str, Any] = {"t": "moved"}
"""Announcement that an address belongs to another session now; clients then check whether it is theirs."""


class Announcer(Protocol):
    """Sender and receiver of announcements between processes."""

    async def announce(self, session_id: int, message: Mapping[str, Any]) -> None:
        """Announce to all processes that something of this session changed.

        Never raises; an announcement can be lost.
        """
        ...

    def listen(self) -> AsyncIterator[tuple[int, Mapping[str, Any]]]:
        """Yield session id and announcement of each subscribed session without end.

        Reconnects when needed.
        """
        ...

    async def subscribe(self, session_ids: Sequence[int]) -> None:
        """Replace the set of sessions whose announcements are received."""
        ...


AccessState = Literal["pending", "allowed", "refused"]
"""State of a chat's request for access to a bot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRow:
    """Access of a chat to a bot; `code` is None once it is decided."""

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
    def data(self) -> bytes: ...


class Sealer(Protocol):
    """Encryption with the secret key of this installation."""

    @property
    def key_id(self) -> str: ...
    def seal(self, plain: bytes, *, about: str) -> SealedSecret: ...


class Tool(Protocol):
    """Tool that a model can call."""

    @property
    def spec(self) -> ToolSpec: ...
    @property
    def idempotent(self) -> bool:
        """Whether the tool can be run again after a crash without harm."""
        ...

    @property
    def timeout_seconds(self) -> float: ...

    async def run(self, arguments: Mapping[str, Any], *, context: ToolContext) -> str | ToolOutput:
        """Run the tool and return its result for the model. Raises ToolFailed.

        The arguments match the schema. A tool may also have `output_chars`, the maximum characters of its
        result; `subject(arguments)`, a short text for the person who waits; and `server`, the name of its MCP
        server.
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
    """Result of a tool."""

    text: str = ""
    images: tuple[ToolImage, ...] = ()
    kept: tuple[Image, ...] = ()
    """Pictures that are already stored as files of the conversation."""
    files: tuple[ToolFile, ...] = ()


class ToolFailed(Exception):
    """Raised by a tool that could not do its work; the text is for the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """Circumstances of a tool call.

    `key` is unique for each call, so that a repeated call is recognised.
    """

    session_id: int
    contact_id: int
    scope: str
    turn: int
    key: str
    call_id: str = ""
    flush_id: int | None = None
    through_turn: int | None = None
    epoch: int = 0
    """Epoch of the turn's lease, which every write of the turn contains."""
    base_turn: int = 0
    """Last turn that a summary has replaced, so that the model does not see its messages."""
    address_id: int | None = None
    channel: str = ""
    group: bool = False
    """Whether other people are in the chat; notes from private conversations must not be used then."""
    anonymous: bool = False
    timezone: str | None = None
    shown: tuple[str, ...] = ()
    """Foreign texts that tools have shown in this silent turn; those of an ordinary turn are in its log."""
    agent_config: Mapping[str, Any] = field(default_factory=dict)
