"""Model at a server: streams its answers, and repeats calls where that can help."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar
from urllib.parse import urlsplit

from shared.adapters.models.catalog import MAKER, OPENAI_HOST, ModelEntry, build_card, find_known_card
from shared.adapters.models.dialects.hidden_text import HiddenText
from shared.adapters.models.dialects.opaque_state import drop_idle, stamp
from shared.adapters.models.error_mapping import (
    AbilityRefused,
    ModelOverloaded,
    ModelUnknown,
    is_about_thinking,
)
from shared.adapters.models.provider import Provider, StreamReader
from shared.adapters.models.stream_parser import AnswerParser, BrokenAnswer, Event, drop_unpaired
from shared.adapters.models.timeouts import Patience, Watch
from shared.adapters.models.token_cap import TokenCap
from shared.adapters.models.usage_check import (
    find_other_share,
    has_low_input,
    has_low_output,
    input_of,
    is_plain,
    is_possible,
    raise_input,
    size_of,
)
from shared.adapters.models.wire import Json
from shared.core.values.errors import (
    ModelAnswerUnusable,
    ModelBusy,
    ModelError,
    ModelRefusedAccount,
    ModelUnavailable,
    PromptTooLong,
)
from shared.core.values.messages import Block, Message, ToolResult, text_message, text_of
from shared.core.verdicts.abilities import Ability, LearnedAbility
from shared.core.verdicts.model_verdicts import ModelVerdicts
from shared.core.verdicts.rejections import Rejection
from shared.core.verdicts.windows import NarrowedWindow
from shared.ports import ModelCard, ModelReply, ModelRequest, OnText, TokenCounter, Usage

COUNT_SECONDS = 10.0
"""Maximum seconds for counting a request's tokens at the provider."""
MOST_CHARS = 8_000_000
"""Maximum characters of one answer; the longest of any model has a tenth of it."""
MOST_UNUSABLE = 3
"""Maximum calls for one answer if the server's answers are unusable, since each call is paid."""
_CUT_BEFORE = 2
"""Streams without an end in one call after which the server is taken to send no end.

The first such stream counts as cut.
"""
PAUSES_AT_MOST = 4
"""Maximum continuations of an answer whose provider pauses for its own tools."""

_ABILITIES_OF_CARD: frozenset[Ability] = frozenset({"tools", "images", "json", "thinking", "cache"})
"""Abilities that are also capabilities of a card."""

_Missing = Mapping[Ability, int | None]
"""Abilities that a request leaves out; the value is a limit that the server named, else None."""
_T = TypeVar("_T")
_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class _Call:
    """State of one `reply` with all its attempts."""

    request: ModelRequest
    on_text: OnText | None
    on_first_chunk: Callable[[], None] | None
    until: float
    """Loop time in seconds after which no further attempt begins."""
    attempt: int = 1
    failures: int = 0
    waited: bool = False
    thinking: bool = True
    said: tuple[Block, ...] = ()
    """Blocks of the answer before the provider paused; the answer continues after them."""
    pauses: int = 0
    unusable: int = 0
    """Number of unusable answers so far."""
    hint: str = ""
    """Sentence for the model about its last, unusable answer; "" after a usable one."""
    quiet_ends: int = 0
    """Number of streams so far that closed without an end."""
    aborted: list[Usage] = field(default_factory=list)
    missing: _Missing = field(default_factory=dict)
    """Abilities that this request leaves out, because the server refused them."""
    probe: Ability | None = None
    """Ability that is used as a probe although it counts as missing; None without a probe."""

    @property
    def session(self) -> int:
        return self.request.about[0]


class RemoteModel:
    """Model with its entry, its provider and its waits; calls are made through the provider."""

    def __init__(
        self,
        entry: ModelEntry,
        provider: Provider,
        counter: TokenCounter,
        *,
        patience: Patience | None = None,
    ) -> None:
        self._entry = entry
        self._provider = provider
        self._counter = counter
        self._patience = _adapt_patience(patience or Patience(), entry)

    async def load(self) -> None:
        """Load the SDK before an expected call."""
        await self._provider.load()

    async def load_card(self, model: str) -> ModelCard:
        """Return the entry's card, whatever `model` names.

        Asks the provider's model list at most once a day.
        """
        if self._entry.window is None:
            await self._provider.load_windows(self._entry.wire_name)
        return self._card()

    async def is_listed(self) -> bool | None:
        """Return whether the provider's list has this model; None if that is unknown."""
        return (await self._provider.load_windows(self._entry.wire_name)).is_listed

    @property
    def wire(self) -> str:
        """Name of the API of its server."""
        return self._entry.wire

    @property
    def server(self) -> tuple[str, int]:
        """Host name and port of its server."""
        parts = urlsplit(self._provider.base_url)
        return self._provider.host, parts.port or (80 if parts.scheme == "http" else 443)

    @property
    def has_price(self) -> bool:
        """Whether the model has known prices."""
        return self._card(believed=False).prices is not None

    async def reply(
        self,
        request: ModelRequest,
        *,
        on_text: OnText | None = None,
        on_first_chunk: Callable[[], None] | None = None,
        token_cap: TokenCap | None = None,
    ) -> ModelReply:
        """Answer a request; `on_first_chunk` is called when the first part of the answer has arrived.

        With `token_cap`, tokens are reserved before the call and settled after it; None means no cap. Raises
        ModelError if all attempts fail, CapReached if the cap has no room for the shortest answer,
        StorageUnavailable if nothing could be reserved.
        """
        if token_cap is None:
            return await self._reply_uncapped(request, on_text=on_text, on_first_chunk=on_first_chunk)
        sent = round(self._card().token_factor * size_of(request, self._counter.count_tokens))
        held = await token_cap.hold(sent, min(request.max_output_tokens, self._card().max_output))
        longest = held.output_tokens
        used: Sequence[Usage] = (Usage(input_tokens=sent, output_tokens=longest),)
        try:
            reply = await self._reply_uncapped(
                replace(request, max_output_tokens=longest), on_text=on_text, on_first_chunk=on_first_chunk
            )
            used = (reply.usage, *reply.aborted)
            return reply
        except ModelError as error:
            used = error.aborted
            raise
        finally:
            await token_cap.settle(
                held, used_input=sum(map(input_of, used)),
                used_output=sum(usage.output_tokens for usage in used),
            )  # fmt: skip

    async def _reply_uncapped(
        self,
        request: ModelRequest,
        *,
        on_text: OnText | None = None,
        on_first_chunk: Callable[[], None] | None = None,
    ) -> ModelReply:
        """Answer a request without a limit on tokens."""
        until = asyncio.get_running_loop().time() + self._patience.total_seconds
        call = _Call(request=request, on_text=on_text, on_first_chunk=on_first_chunk, until=until)
        call.missing = self._verdicts.abilities.list_missing(call.session)
        self._begin_probe(call)
        while True:
            try:
                reply = await self._attempt(call)
            except ModelError as error:
                error.provider = self._provider.host
                await self._prepare_again(call, error)
                call.attempt += 1
                continue
            if reply is not None:
                return reply

    async def count_tokens(self, request: ModelRequest) -> int | None:
        """Return the request's tokens as the provider counts them.

        Returns None if it cannot count, or gives no number within COUNT_SECONDS.
        """
        card = self._card()
        if "count_tokens" not in card.capabilities:
            return None
        try:
            async with asyncio.timeout(COUNT_SECONDS):
                return await self._provider.count_tokens(request, card, self._entry.wire_name)
        except (ModelError, TimeoutError) as error:
            _log.info("counting tokens failed: %s", error)
            return None

    async def build_body(self, request: ModelRequest) -> Json:
        """Return the body of a request's first attempt without sending it."""
        await self.load_card(request.model)
        return self._build_body(request, self._verdicts.abilities.list_missing(request.about[0]))

    async def close(self) -> None:
        """Close the client of the model's provider, which other models may share."""
        await self._provider.close()

    def _card(self, missing: _Missing | None = None, *, believed: bool = True) -> ModelCard:
        """Return the model's card without `missing` abilities; None means those missing for every session.

        `believed` False ignores what was learned from refusals.
        """
        told = self._provider.get_last_windows(self._entry.wire_name)
        card = build_card(
            self._entry, window=told.window, max_output=told.max_output, foreign=self._provider.foreign,
            host=self._provider.host,
        )  # fmt: skip
        if not believed:
            return card
        card = _narrow(card, self._verdicts.abilities.list_missing(0) if missing is None else missing)
        met = self._verdicts.window.get_believed_maximum()
        return card if met is None or met >= card.window else replace(card, window=met, window_known=True)

    def _build_body(self, request: ModelRequest, missing: _Missing, *, thinking: bool = True) -> Json:
        return self._provider.build_body(
            request, self._card(missing), self._entry.wire_name, thinking=thinking, missing=missing.keys()
        )

    def _begin_probe(self, call: _Call) -> None:
        """Let the request use an ability that counts as missing, if a probe of it is due."""
        probe = self._verdicts.abilities.find_probe(call.session)
        if probe is None:
            return
        without = {name: number for name, number in call.missing.items() if name != probe}
        if self._build_body(call.request, without) == self._build_body(call.request, call.missing):
            return
        self._verdicts.abilities.start_probe(probe)
        call.missing, call.probe = without, probe

    @property
    def _verdicts(self) -> ModelVerdicts:
        return self._provider.get_verdicts(self._entry.wire_name)

    def find_rejection(self) -> Rejection | None:
        """Return the newest rejection of this model's requests, for operators.

        Returns None if it has answered since.
        """
        return self._verdicts.rejections.find_newest(provider=self._provider.host, model=self._entry.name)

    def list_learned(self) -> tuple[LearnedAbility, ...]:
        """Return the abilities that this model's server has refused, for operators."""
        return self._verdicts.abilities.describe(provider=self._provider.host, model=self._entry.name)

    @property
    def _is_maker(self) -> bool:
        return self._provider.host in (MAKER, OPENAI_HOST)

    @property
    def _keeps_unsigned(self) -> bool:
        """Whether thinking without a signature is kept, since the server may need it back.

        Anthropic signs all.
        """
        return self._entry.wire == "messages" and self._provider.host != MAKER

    def _hidden_text(self, session: int) -> HiddenText | None:
        """Return the filter for an answer's text.

        Returns None for a model's own maker, which leaves no tags in it.
        """
        if self._is_maker:
            return None
        begins_in_thought = self._verdicts.abilities.begins_in_thought(session)
        return HiddenText(tags=self._entry.thought_tags, begins_in_thought=begins_in_thought)

    def find_narrowed_window(self) -> NarrowedWindow | None:
        """Return the smaller window that the provider's repeated refusals suggest, for operators.

        Returns None if the provider accepts requests up to the card's window.
        """
        met, window = self._verdicts.window.get_believed_maximum(), self._card(believed=False).window
        if met is None or met >= window:
            return None
        return NarrowedWindow(
            provider=self._provider.host, model=self._entry.name, window=met, expected=window,
            sessions=self._verdicts.window.list_sessions(),
        )  # fmt: skip

    def _note_limit(self, call: _Call, error: PromptTooLong, maximum: int) -> None:
        """Record the limit that a refusal names; other requests use it after several refusals."""
        believed = self._verdicts.window.record_refused(
            maximum, session=call.session, is_quoted=_is_quoted(maximum, call.request)
        )
        _log.warning(
            "%s: %s tokens were refused as more than %d, where %d should fit; %s",
            self._entry.name,
            "an unknown number of" if error.tokens is None else error.tokens,
            maximum,
            self._card(believed=False).window,
            "it was said several times and is believed" if believed else "believed for this request only",
        )
        if believed:
            self._provider.forget_windows(self._entry.wire_name)

    async def _attempt(self, call: _Call) -> ModelReply | None:
        """Make one call; return the reply, or None if the provider paused.

        Tokens of a failed call are added to `call`. Raises ModelError.
        """
        self._provider.breaker.admit(call.session)
        parser = AnswerParser(self._hidden_text(call.session), keeps_unsigned=self._keeps_unsigned)
        try:
            reply = await self._stream(call, parser)
        except ModelError as error:
            if isinstance(error, PromptTooLong) and error.maximum:
                self._note_limit(call, error, error.maximum)
            self._blame(error, call.request)
            self._book(call, parser)
            raise
        except asyncio.CancelledError:
            spent = parser.estimate_spent(self._counter, self._card().token_factor)
            _log.info("stopped while %s answered; spent so far: %s", self._entry.name, spent)
            raise
        self._provider.breaker.record_success()
        self._provider.has_answered = True
        self._verdicts.rejections.clear(call.session)
        if call.probe is not None and call.probe not in call.missing:
            self._verdicts.abilities.heal(call.probe)
        if reply is not None and reply.usage.known:
            self._verdicts.window.record_accepted(reply.usage.context_tokens - reply.usage.output_tokens)
        return reply

    async def _stream(self, call: _Call, parser: AnswerParser) -> ModelReply | None:
        loop = asyncio.get_running_loop()
        first_by = min(call.until, loop.time() + self._patience.first_byte_seconds)
        line = await _wait_until(first_by, "no answer", self._provider.open_stream(self._body(call)))
        watch, told, is_whole = Watch(), False, False
        try:
            events = await watch.wait(first_by, "no first event", line.read_next())
            if events and call.on_first_chunk is not None:
                call.on_first_chunk()
            while events:
                piece = await self._show(call, parser, events)
                if parser.ended:
                    if parser.is_empty:
                        raise ModelAnswerUnusable("the server ended the answer before it began")
                    is_whole = True
                    return self._reply(call, parser, line)
                if told := told or bool(piece):
                    await line.await_more()
                silent_at = min(call.until, loop.time() + self._patience.silence_seconds)
                events = await watch.wait(silent_at, "the stream stalled", line.read_next())
            if parser.is_whole or self._ends_quietly(call, parser):
                await self._show(call, parser, [{"type": "message_stop"}])
                return self._reply(call, parser, line)
            raise ModelUnavailable("the stream ended before its end was announced")
        finally:
            watch.close()
            await (self._provider.finish(line) if is_whole else line.close())

    def _ends_quietly(self, call: _Call, parser: AnswerParser) -> bool:
        """Return whether an answer counts as complete although its stream closed without an end.

        The first time it may have been cut and is requested again; the second time it is the server's way.
        """
        if self._is_maker or not parser.says_anything:
            return False
        call.quiet_ends += 1
        if call.quiet_ends < _CUT_BEFORE and not self._verdicts.abilities.ends_quietly(call.session):
            return False
        try:
            parser.build_blocks()
        except BrokenAnswer:
            return False
        self._verdicts.abilities.note_quiet_end(session=call.session)
        parser.end_unannounced()
        return True

    async def _show(self, call: _Call, parser: AnswerParser, events: Sequence[Event]) -> str:
        """Process events and pass their text to `on_text`.

        A higher attempt number replaces text that was a thought.
        """
        piece = parser.take_all(events)
        if parser.chars > MOST_CHARS:
            raise ModelAnswerUnusable("the answer has no end", may_repeat=False)
        if parser.withdrawn:
            self._verdicts.abilities.note_thought_in_prompt(session=call.session)
            call.attempt += 1
        if (piece or parser.withdrawn) and call.on_text is not None:
            await call.on_text(call.attempt, piece)
        return piece

    def _body(self, call: _Call) -> Json:
        request = call.request
        if call.hint:
            told = text_message("user", call.hint)
            request = replace(request, messages=(*request.messages, told))
        if call.said:
            going_on = Message(role="assistant", blocks=call.said)
            request = replace(request, messages=(*request.messages, going_on))
        return self._build_body(request, call.missing, thinking=call.thinking)

    def _reply(self, call: _Call, parser: AnswerParser, line: StreamReader) -> ModelReply | None:
        try:
            blocks = parser.build_unpaired_blocks()
            said = (*call.said, *stamp(blocks, self._entry.wire_name, is_foreign=self._provider.foreign))
        except BrokenAnswer as error:
            raise ModelAnswerUnusable(f"unusable answer: {error}", hint=error.hint) from error
        if parser.paused and parser.build_unpaired_blocks() and call.pauses < PAUSES_AT_MOST:
            call.said, call.pauses = said, call.pauses + 1
            self._book(call, parser)
            return None
        return ModelReply(
            blocks=drop_idle(drop_unpaired(said)),
            usage=self._check_usage(call, parser, parser.build_usage()),
            stop_reason=parser.find_stop_reason(),
            model=self._entry.name,
            request_id=line.request_id,
            aborted=tuple(call.aborted),
        )

    def _blame(self, error: ModelError, request: ModelRequest) -> None:
        """Record the error in the circuit breaker.

        Busy servers, full windows and refused requests count as success.
        """
        match error:
            case ModelUnknown():
                self._provider.breaker.record_success()
            case ModelRefusedAccount():
                self._provider.breaker.record_refusal(str(error), session=request.about[0])
            case ModelUnavailable():
                self._provider.breaker.record_failure(
                    str(error), session=request.about[0], answered=error.answered
                )
            case _:
                self._provider.breaker.record_success()

    def _book(self, call: _Call, parser: AnswerParser) -> None:
        spent = parser.estimate_spent(self._counter, self._card().token_factor)
        if spent is not None:
            # A server that counts only at the end has not counted the output before the break.
            call.aborted.append(self._check_usage(call, parser, spent))

    def _check_usage(self, call: _Call, parser: AnswerParser, usage: Usage) -> Usage:
        """Return the provider's usage.

        It is our estimate, or the larger of both, if the provider's counts cannot be right.
        """
        if not usage.known:
            return self._estimate_usage(call, parser)
        words, count = parser.words(), self._counter.count_tokens
        if not is_possible(usage, call.request, words=words):
            _log.warning("%s: nothing can have been counted so: %s", self._entry.name, usage)
            return self._estimate_usage(call, parser)
        factor = self._card().token_factor
        has_tools = "tools" in self._card(call.missing).capabilities
        share = self._find_other_share()
        low_input = has_low_input(
            usage, call.request, count=count, factor=factor, has_tools=has_tools, share=share
        )
        low_output = has_low_output(usage, words, count=count, factor=factor, share=share)
        if not (low_input or low_output or self._is_suspected(call)):
            return usage
        if low_input or low_output:
            self._verdicts.counts.record(session=call.session)
        _log.warning("%s: fewer tokens were counted than there are: %s", self._entry.name, usage)
        ours = self._estimate_usage(call, parser)
        output = max(usage.output_tokens, ours.output_tokens)
        return replace(raise_input(usage, ours.input_tokens), output_tokens=output, known=False)

    def _find_other_share(self) -> float:
        """Return the least share of our count that is credible for this model outside of ASCII."""
        entry, prices = self._entry, self._card().prices
        is_free = prices is not None and not (prices.input or prices.output)
        is_known = find_known_card(entry.wire_name, self._provider.host) is not None
        return find_other_share(
            entry.wire_name, is_known=is_free or is_known or entry.token_factor is not None
        )

    def _is_suspected(self, call: _Call) -> bool:
        """Return whether the token count is doubtful, since earlier ones in the session were too low.

        A right count of plain text ends the doubt.
        """
        if not self._verdicts.counts.are_suspected(session=call.session):
            return False
        if not is_plain(call.request):
            return True
        self._verdicts.counts.clear()
        return False

    def _estimate_usage(self, call: _Call, parser: AnswerParser) -> Usage:
        count, factor = self._counter.count_tokens, self._card().token_factor
        return Usage(
            input_tokens=round(factor * size_of(call.request, count)),
            output_tokens=round(factor * count(parser.words())),
            known=False,
        )

    async def _prepare_again(self, call: _Call, error: ModelError) -> None:
        """Wait before another attempt; raise the error, with the tokens spent so far, if there is none."""
        seconds = self._pause(call, error)
        loop = asyncio.get_running_loop()
        if seconds is None or loop.time() + seconds >= call.until:
            self._verdicts.rejections.record(error, session=call.session, messages=call.request.messages)
            error.aborted = (*error.aborted, *call.aborted)
            raise error
        _log.info(
            "%s: attempt %d failed, again in %.1f s: %s", self._entry.name, call.attempt, seconds, error
        )
        await self._patience.sleep(seconds)

    def _pause(self, call: _Call, error: ModelError) -> float | None:
        """Return the seconds to wait before the next attempt; None if there is none."""
        match error:
            case ModelBusy(retry_after_seconds=seconds) if not call.waited:
                call.waited = True
                return seconds if seconds <= self._patience.longest_wait_seconds else None
            case ModelUnavailable():
                return self._backoff(call, overloaded=isinstance(error, ModelOverloaded))
            case ModelAnswerUnusable(hint=hint, may_repeat=True):
                call.unusable, call.hint = call.unusable + 1, hint
                return self._patience.backoff_seconds if call.unusable < MOST_UNUSABLE else None
            case AbilityRefused() if self._learn(call, error):
                return 0.0
            case _ if call.thinking and is_about_thinking(error):
                call.thinking = False
                return 0.0
        return None

    def _learn(self, call: _Call, error: AbilityRefused) -> bool:
        """Record a refused ability; return whether the next body leaves it out."""
        abilities = self._verdicts.abilities
        if not abilities.learn(error.missing, str(error), session=call.session, known=call.missing):
            return False
        call.missing = abilities.list_missing(call.session)
        return True

    def _backoff(self, call: _Call, *, overloaded: bool) -> float | None:
        call.failures += 1
        if call.failures >= self._patience.attempts or self._provider.breaker.is_open:
            return None
        usual = self._patience.overload_backoff_seconds if overloaded else self._patience.backoff_seconds
        return self._patience.jitter(usual * 2 ** (call.failures - 1))


def _narrow(card: ModelCard, missing: _Missing) -> ModelCard:
    """Return the card without missing abilities, and with the output limit that the server named."""
    if not missing:
        return card
    limit = missing.get("output_limit")
    return replace(
        card,
        capabilities=card.capabilities - (missing.keys() & _ABILITIES_OF_CARD),
        max_output=card.max_output if limit is None else min(card.max_output, limit),
    )


def _is_quoted(number: int, request: ModelRequest) -> bool:
    """Return whether a number occurs in the conversation, so that the server may have quoted it."""
    plain = f"{number:,}"
    forms = (str(number), plain, plain.replace(",", "."), plain.replace(",", " "), plain.replace(",", "_"))
    texts = (
        text
        for message in request.messages
        for text in (
            text_of(message.blocks),
            *(block.text for block in message.blocks if isinstance(block, ToolResult)),
        )
    )
    return any(form in text for text in texts for form in forms)


def _adapt_patience(patience: Patience, entry: ModelEntry) -> Patience:
    """Return the waits, replaced by those that an operator has set for this model."""
    first, silence = entry.first_token_seconds, entry.silence_seconds
    return replace(
        patience,
        first_byte_seconds=patience.first_byte_seconds if first is None else first,
        silence_seconds=patience.silence_seconds if silence is None else silence,
    )


async def _wait_until(deadline: float, otherwise: str, wait: Awaitable[_T]) -> _T:
    try:
        async with asyncio.timeout_at(deadline):
            return await wait
    except TimeoutError as error:
        raise ModelUnavailable(otherwise) from error
