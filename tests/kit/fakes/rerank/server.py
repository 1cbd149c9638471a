"""The fake of `/v1/rerank`: checks requests as a real server does.

Passages rank by the share of letter pairs that they have in common with the question.
"""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web

from tests.kit.fakes.scripted_api import ScriptedApi, has_key

MODEL = "fake-reranker"
FIELDS = frozenset({"model", "query", "documents", "top_n"})
MOST_DOCUMENTS = 1_000


class RerankApi(ScriptedApi):
    """A strict fake of `/v1/rerank`."""

    path = "/v1/rerank"
    actions = frozenset({"status", "latency", "body"})

    async def answer(self, request: web.Request) -> web.Response:
        action = self.next_action()
        if not has_key(request):
            return web.json_response({"detail": "Invalid API key"}, status=401)
        wish = await request.json()
        if (objection := _objection(wish)) is not None:
            return web.json_response({"detail": objection}, status=422)
        self.asked.append(wish)
        await asyncio.sleep(action.get("latency", 0))
        if "status" in action:
            return web.json_response({"detail": "as the script wants it"}, status=action["status"])
        if "body" in action:
            return web.Response(text=action["body"], content_type="application/json")
        scores = [_score(wish["query"], document) for document in wish["documents"]]
        ranked = sorted(range(len(scores)), key=lambda at: -scores[at])[: wish["top_n"]]
        results = [{"index": at, "relevance_score": scores[at]} for at in ranked]
        return web.json_response({"model": MODEL, "results": results, "usage": {"total_tokens": 1}})


def _objection(wish: Any) -> str | None:
    if not isinstance(wish, dict) or set(wish) != FIELDS:
        return "the fields are model, query, documents and top_n"
    if wish["model"] != MODEL:
        return "unknown model"
    documents = wish["documents"]
    if not isinstance(documents, list) or not 0 < len(documents) <= MOST_DOCUMENTS:
        return "documents must be a list of 1 to 1,000"
    if not all(isinstance(text, str) and text for text in (wish["query"], *documents)):
        return "query and documents must be texts"
    return None if type(wish["top_n"]) is int and wish["top_n"] > 0 else "top_n must be a number"


def _score(question: str, document: str) -> float:
    wanted, had = _pairs(question), _pairs(document)
    return len(wanted & had) / len(wanted | had) if wanted | had else 0.0


def _pairs(text: str) -> set[str]:
    plain = text.casefold()
    return {plain[at : at + 2] for at in range(len(plain) - 1)}
