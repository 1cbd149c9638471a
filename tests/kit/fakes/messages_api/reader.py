"""A reader that answers only from recalled passages: the action `read` of a rule.

It quotes the line that shares most words with the question. If no line shares enough, it calls `recall` once,
and then says that it does not know.
"""

from __future__ import annotations

import re

from tests.kit.fakes.messages_api.brain import Answer, calls, said
from tests.kit.fakes.messages_api.schema_values import filled
from tests.kit.fakes.messages_api.sentences import WORD, key_words, outside_tags
from tests.kit.fakes.messages_api.shapes import Json, blocks_of, newest_words, text_of

ENOUGH = 0.6
"""Least share, 0 to 1, of the question's words that a quoted line must hold."""
UNKNOWN = "I do not know: I found nothing about it in our conversations."
_RECALLED = re.compile(r"<recalled_passages>(.*?)</recalled_passages>", re.DOTALL)
_SOURCE = re.compile(r"^(?:#\d+|earlier) [^:\n]{1,80}: ")
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]+")


def read(body: Json) -> Answer:
    """Answer from the recalled passages of the prompt and the results of tools since the newest message."""
    words, _ = newest_words(body["messages"])
    question = outside_tags(words).strip() or words
    found, searched = _recalled(body)
    if quoted := _best_line(question, found):
        return said(quoted)
    tool = next((tool for tool in body.get("tools") or () if tool.get("name") == "recall"), None)
    if tool is None or searched:
        return said(UNKNOWN)
    query = {"query": " ".join(WORD.findall(question))[:300]}
    return calls(body, [("recall", filled(tool["input_schema"], question) | query)])


def _recalled(body: Json) -> tuple[list[str], bool]:
    """Return the recalled lines, and whether a tool was used since the newest message."""
    texts = _RECALLED.findall(text_of(body.get("system")))
    searched = False
    for message in reversed(body["messages"]):
        blocks = blocks_of(message["content"])
        results = [text_of(block.get("content")) for block in blocks if block.get("type") == "tool_result"]
        texts += results
        searched = searched or bool(results)
        if message["role"] == "user" and text_of(message["content"]).strip():
            texts += _RECALLED.findall(text_of(message["content"]))
            break
    return [line for text in texts for line in text.splitlines() if line.strip()], searched


def _best_line(question: str, lines: list[str]) -> str:
    """Return the line with most of the question's words.

    Return "" if none has enough of them, or adds nothing to the question.
    """
    wanted = _words(question)
    best, best_share = "", 0.0
    for line in lines:
        told = _SOURCE.sub("", line)
        words = _words(told)
        share = len(words & wanted) / max(1, len(wanted))
        if share > best_share and words - wanted:
            best, best_share = told, share
    return best if best_share >= ENOUGH else ""


def _words(text: str) -> set[str]:
    pairs = {run[at : at + 2] for run in _UNSPACED.findall(text) for at in range(max(1, len(run) - 1))}
    return key_words(_UNSPACED.sub(" ", text)) | pairs
