"""Inline queries: what people type after a bot's name, and the results that the bot offers."""

from __future__ import annotations

import re

from tests.kit.fakes.bot_api.calls import Call
from tests.kit.fakes.bot_api.entities import Words, words_of
from tests.kit.fakes.bot_api.refusals import QUERY_TOO_OLD, Refusal, misuse
from tests.kit.fakes.bot_api.shapes import Json
from tests.kit.fakes.bot_api.world import InlineQuery, NoSuchThing, World

INLINE_SECONDS = 15.0
"""Seconds that a query waits for its answer; in reality ten to thirty."""
MAX_QUERY = 256
MAX_RESULTS = 50
_START = re.compile(r"[A-Za-z0-9_-]{1,64}")


def ask_inline(world: World, wish: Json) -> Json:
    person, bot = world.person(wish["person"]), world.bot(wish.get("bot"))
    if len(wish["query"]) > MAX_QUERY:
        raise NoSuchThing("an app takes no longer query")
    number = str(5_000_000_000 + world.number())
    world.inline[number] = InlineQuery(id=number, bot=bot.id, person=person.id, born=world.clock.now())
    content: Json = {"id": number, "from": person.as_json(), "query": wish["query"], "offset": ""}
    update = bot.inbox.put("inline_query", content, lane=f"person:{person.id}")
    return {"query": number, "updates": {str(bot.id): update}}


def look_at_inline(world: World, wish: Json) -> Json:
    return {"answer": world.inline[wish["query"]].answer}


def article_words(article: Json) -> Words:
    """Return the text of an article as it would be posted; refused as by Telegram."""
    if not article["title"].strip():
        raise misuse("article title is empty")
    content = article["input_message_content"]
    return words_of({**content, "text": content["message_text"]})


def answer_inline_query(world: World, call: Call) -> bool:
    params = call.params
    query = world.inline.get(params["inline_query_id"])
    late = query is not None and world.clock.now() > query.born + INLINE_SECONDS
    if query is None or query.bot != call.bot.id or query.answer is not None or late:
        raise Refusal(QUERY_TOO_OLD)
    results = params["results"]
    ids = [one["id"] for one in results]
    if len(results) > MAX_RESULTS:
        raise misuse("RESULTS_TOO_MUCH")
    if len(set(ids)) < len(ids) or not all(1 <= len(one.encode()) <= 64 for one in ids):
        raise misuse("RESULT_ID_INVALID")
    for one in results:
        article_words(one)
    if (button := params.get("button")) is not None and not _START.fullmatch(
        button.get("start_parameter", "")
    ):
        raise misuse("BUTTON_URL_INVALID")
    query.answer = {name: value for name, value in params.items() if name != "inline_query_id"}
    return True
