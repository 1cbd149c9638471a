"""Ports: what the services need from the outside world, each port no larger than one need."""

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
"""Limiter of storage: `async with storage_limiter():` turns an unexpected error into StorageUnavailable,
unless storage was healthy throughout, so that no update, job or message is blamed for an outage."""
StopReason = Literal["end_turn", "max_tokens", "tool_use", "refusal", "window_exceeded", "stop_sequence"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureContent:
    """The bytes behind an image block, and the sentence that stands in for it later."""

    mime: str
    body: bytes
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One call. `cache_at` holds indices of messages that end a stable prefix (at most 3)."""

    model: str
    system: tuple[SystemPart, ...]
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    max_output_tokens: int = 8192
    cache_at: tuple[int, ...] = ()
    behind_mark: int = 0
    """Blocks at the end of the last of these messages that belong to this call alone."""
    cache_long: bool = False
    """Whether the provider shall keep the prefix for an hour instead of five minutes."""
    pictures: Mapping[int, PictureContent] = field(default_factory=dict)
    """Pictures of the open turn by attachment; a model without vision gets their descriptions."""
    json_schema: Mapping[str, Any] | None = None
    """Ask for JSON of this shape where the provider can; the answer is parsed leniently anyway."""
    about: tuple[int, int] = (0, 0)
    """The conversation and its turn, or a job's number below 0; two that say the same prove more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReply:
    blocks: tuple[Block, ...]
    usage: Usage
    stop_reason: StopReason
    model: str
    request_id: str = ""
    aborted: tuple[Usage, ...] = ()
    """Attempts that were paid for but thrown away (cut streams, one retry)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """Facts of one model. `capabilities` ⊆ {cache, tools, thinking, count_tokens, json, images}."""

    name: str
    window: int
    max_output: int
    window_known: bool
    prices: Prices | None
    capabilities: frozenset[str] = field(default_factory=frozenset)
    offline: bool = False
    callable_tools: frozenset[str] | None = None
    """Names of the tools that the model can call; None for any."""
    token_factor: float = 1.10
    """Factor on the bundled vocabulary's count before calibration."""


OnText = Callable[[int, str], Awaitable[None]]
"""`on_text(attempt, piece)`: a piece of the visible answer; a higher attempt begins again from nothing."""


class ChatModel(Protocol):
    async def load_card(self, model: str) -> ModelCard:
        """Window, prices and abilities; never raises, an unknown model gets 8,192 tokens, flagged."""
        ...

    async def reply(self, request: ModelRequest, *, on_text: OnText | None = None) -> ModelReply:
        """Return the whole answer, streamed on the way, with retries. Raises `ModelError`s only."""
        ...

    async def count_tokens(self, request: ModelRequest) -> int | None:
        """The provider's own count, or None where it has none."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """Transcript of a recording; `seconds` as the service counted them, None if it states none."""

    text: str
    seconds: float | None = None


class Transcriber(Protocol):
    @property
    def model(self) -> str:
        """For the ledger."""
        ...

    async def transcribe(
        self, recording: Recording, *, language: str = "", session: int | None = None
    ) -> Transcript:
        """Return the transcript of a recording; raise only `ModelError`s.

        `language` is a guess such as `de`, or empty. Faults count for other conversations than `session`
        only after three different ones.
        """
        ...


class Speaker(Protocol):
    @property
    def model(self) -> str:
        """For the ledger."""
        ...

    async def speak(self, words: str, *, form: SpeechFormat, session: int | None = None) -> bytes:
        """Return the spoken words as audio in `form`; raise only `ModelError`s.

        Faults count by `session` as a transcriber's do.
        """
        ...


class Reranker(Protocol):
    async def rank(
        self, question: str, passages: Sequence[str], *, session: int | None = None
    ) -> Sequence[int] | None:
        """Return the places of passages, the best first; None without an answer in time. Never raises.

        Faults count by `session` as a transcriber's do.
        """
        ...

    async def close(self) -> None: ...


class Encoder(Protocol):
    async def encode(
        self, texts: Sequence[str], *, question: bool = False, session: int | None = None
    ) -> Encoded:
        """Return a vector of each text, and the model's name also without texts.

        Raises EncoderEnded if the texts are what cannot be encoded, and ModelUnavailable. Faults count by
        `session` as a transcriber's do.
        """
        ...

    async def close(self) -> None: ...


class Clock(Protocol):
    def now(self) -> datetime:
        """Return the current time, with time zone; deadlines promised to people use the clock of Postgres."""
        ...


class TokenCounter(Protocol):
    def count_tokens(self, text: str) -> int:
        """Return the estimated tokens of a text, before a model's factor; never raises."""
        ...


class Doorbell(Protocol):
    async def ring(self, job: DueJob) -> bool:
        """Announce a due job to the workers; False if no worker heard it. Never raises."""
        ...


ALL_PROCESSES = 0
"""No session: what is announced here, every listener hears, whatever it follows."""
DASHBOARD = -1
"""Channel without a session: changes for operators' pages, which alone follow it."""
TURN_DUE: Mapping[str, Any] = {"t": "due"}
"""Announcement that a turn waits for a process of another channel."""

TYPING: Mapping[str, Any] = {"t": "typing"}
"""To a session: the human who has it writes. To the dashboard, with the `session`: its person does."""

TELEGRAM_CHAT_MOVED: Mapping[str, Any] = {"t": "moved"}
"""Some place leads to another session now; screens look whether it is theirs."""


class Announcer(Protocol):
    async def announce(self, session_id: int, message: Mapping[str, Any]) -> None:
        """Tell every process that something of this session changed. Never raises, may be lost."""
        ...

    def listen(self) -> AsyncIterator[tuple[int, Mapping[str, Any]]]:
        """Iterate for ever over subscribed sessions' ids and announcements; reconnect when needed."""
        ...

    async def subscribe(self, session_ids: Sequence[int]) -> None:
        """Replace the set of sessions to hear about."""
        ...


class Tool(Protocol):
    @property
    def spec(self) -> ToolSpec: ...
    @property
    def idempotent(self) -> bool:
        """True if the tool can be run again after a crash without harm."""
        ...

    @property
    def timeout_seconds(self) -> float: ...

    async def run(self, arguments: Mapping[str, Any], *, context: ToolContext) -> str | ToolOutput:
        """Run the tool and return its result for the model; raise ToolFailed for a result marked as error.

        The arguments fit the schema. A tool may also have `output_chars`, the most that is kept of its
        result, `subject(arguments)`, a few words for the person who waits, and `server`, the name of the MCP
        server that brings it.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolImage:
    """A picture as a tool returned it, of any size and kind."""

    body: bytes
    mime: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFile:
    """A file for the person, brought with the answer of the turn; `width` and `height` of a picture."""

    name: str
    mime: str
    body: bytes
    width: int | None = None
    height: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOutput:
    text: str = ""
    images: tuple[ToolImage, ...] = ()
    kept: tuple[Image, ...] = ()
    """Pictures that are files of the conversation already."""
    files: tuple[ToolFile, ...] = ()


class ToolFailed(Exception):
    """The tool could not do it; the text is for the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """Person whom a tool works for; `key` is unique per call, so that a repeat is recognised."""

    session_id: int
    contact_id: int
    scope: str
    turn: int
    key: str
    call_id: str = ""
    flush_id: int | None = None
    through_turn: int | None = None
    epoch: int = 0
    """Epoch of the turn's claim, which every write of a turn carries."""
    base_turn: int = 0
    """Turns up to this one are behind the summary, so that the model does not see their words."""
    address_id: int | None = None
    channel: str = ""
    group: bool = False
    """Whether others listen: what is known from a private talk stays out."""
    anonymous: bool = False
    timezone: str | None = None
    shown: tuple[str, ...] = ()
    """Words of others that tools have shown in this silent turn; those of a turn are in its log."""
    agent_config: Mapping[str, Any] = field(default_factory=dict)
