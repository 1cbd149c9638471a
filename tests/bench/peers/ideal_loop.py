"""The floor: a loop that only appends, cached to its end, and compacts by one call on the warm prefix."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from shared.adapters.models.routing import DEFAULT_CHAT_MODEL
from tests.bench.peers.bill import Bill
from tests.bench.peers.ideal_mind import IdealMind
from tests.bench.peers.provider import SECONDS_BETWEEN_TURNS
from tests.bench.peers.talks import Talk
from tests.kit.fakes.messages_api import prefix
from tests.kit.fakes.messages_api.brain import Answer
from tests.kit.fakes.messages_api.cache import PrefixCache
from tests.kit.fakes.messages_api.catalogue import Catalogue
from tests.kit.fakes.messages_api.shapes import Json
from tests.kit.fakes.messages_api.validate import check_request

SYSTEM = "You are a friendly and careful assistant. Answer in the language of the newest message."
SUMMARISE = (
    "Write down what is needed to go on with this conversation, names and numbers exactly. "
    "Answer with the summary alone."
)
KEPT_TURNS = 3
MARK = {"type": "ephemeral"}


@dataclass(slots=True)
class _Loop:
    mind: IdealMind
    trigger: int
    cache: PrefixCache = field(default_factory=PrefixCache)
    bill: Bill = field(default_factory=Bill)
    now: float = 0.0
    history: list[Json] = field(default_factory=list)

    def turn(self, words: str) -> None:
        self.history.append(_message("user", words))
        if prefix.count(self._body()) > self.trigger:
            self._compact()
        self.history.append(_message("assistant", _text(self._ask("chat"))))
        self.now += SECONDS_BETWEEN_TURNS

    def _compact(self) -> None:
        """The newest turns stay; the summary takes the place of all others."""
        newest = self.history.pop()
        self.history.append(_message("user", SUMMARISE))
        summary = _text(self._ask("summary"))
        self.history.pop()
        kept = self.history[-2 * KEPT_TURNS :]
        first = _message("user", f"{summary}\n\n{kept[0]['content'][0]['text']}")
        self.history = [first, *kept[1:], newest]

    def _ask(self, kind: str) -> Answer:
        body = self._body()
        check_request(body, _MODEL)
        self.bill.add(kind, body, self.cache.use(body, now=self.now))
        return self.mind(body)

    def _body(self) -> Json:
        *before, last = self.history
        marked = {**last, "content": [{**last["content"][0], "cache_control": MARK}]}
        return {
            "model": DEFAULT_CHAT_MODEL,
            "max_tokens": 4_096,
            "system": SYSTEM,
            "messages": [*before, marked],
        }


def play_ideal(talk: Talk, *, trigger: int) -> dict[str, Any]:
    mind = IdealMind(talk.facts)
    loop = _Loop(mind=mind, trigger=trigger)
    for exchange in talk.exchanges:
        mind.next_answer = exchange.answer
        loop.turn(exchange.person)
    found = loop.bill.as_json()
    for fact in talk.facts:
        mind.asked = fact
        loop.turn(fact.question)
    return {**found, "facts": len(mind.in_prompt), "asked": len(talk.facts), "invalid": 0}


_found_model = Catalogue().get(DEFAULT_CHAT_MODEL)
assert _found_model is not None
_MODEL = _found_model


def _message(role: str, words: str) -> Json:
    return {"role": role, "content": [{"type": "text", "text": words}]}


def _text(answer: Answer) -> str:
    return str(answer.blocks[0]["text"])
