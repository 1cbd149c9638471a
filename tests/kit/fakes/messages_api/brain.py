"""Decides what the fake model answers: it quotes, saves notes, writes summaries, or repeats the question."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from typing import Literal

from tests.kit.fakes.messages_api.schema_values import filled
from tests.kit.fakes.messages_api.sentences import best_match, outside_tags, salience, sentences, shortened
from tests.kit.fakes.messages_api.shapes import Json, blocks_of, compact_json, newest_words, text_of
from tests.kit.fakes.messages_api.summaries import asks_for_text, summary_json, summary_text

Kind = Literal["chat", "flush", "summary", "count_tokens"]
REMEMBER = re.compile(
    r"\b(?:remember|memori[sz]e|don't forget|do not forget|note that|make a note)\b", re.IGNORECASE
)
ASKS_WHETHER_REMEMBERED = re.compile(r"\b(?:do|did|can) you (?:still )?remember\b(?! that\b)", re.IGNORECASE)
MARK = re.compile(r"\b[a-z]\d+_x\d+\b")
"""Pattern of the marks by which the fault suite's people recognise their messages.

See `tests.faults.transcripts`.
"""
SEQ = re.compile(r"\[#(\d+)[^\]]*\]")
MAX_NOTES = 3
_ASKS_FOR_LINES = "kind | note | number"
_ASKS_FOR_JSON = '\n{"notes": ['
_SOURCE_LINE = re.compile(r"^\[#(\d+)\] person: (.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    blocks: tuple[Json, ...]
    stop_reason: str
    stop_sequence: str | None = None


def kind_of(body: Json) -> Kind:
    """Return what Evertalk wants with this request, judged by its words and tools alone."""
    words, _ = newest_words(body.get("messages") or [])
    asked = f"{text_of(body.get('system'))}\n{words}"
    schema = compact_json((body.get("output_config") or {}).get("format") or {})
    if any('"narrative"' in text and '"add"' in text for text in (asked, schema)):
        return "summary"
    if asks_for_text(words):
        return "summary"
    if (_save_tool(body) or _ASKS_FOR_LINES in asked) and re.search(r"\bSILENT\b", words):
        return "flush"
    if _ASKS_FOR_JSON in text_of(body.get("system")):
        return "flush"
    return "chat"


def answer(body: Json) -> Answer:
    """Return the fake model's answer to a request that no rule of the script matches."""
    words, after_tools = newest_words(body["messages"])
    match kind_of(body):
        case "summary":
            if asks_for_text(words):
                return said(summary_text("\n".join(text_of(m["content"]) for m in body["messages"])))
            return said(summary_json(words, body["messages"]))
        case "flush":
            return said("SILENT") if after_tools else _flushed(body, words)
        case _:
            return _chat(body, words, after_tools)


def said(text: str) -> Answer:
    """Return a finished answer of one text; an empty text gives an answer without blocks."""
    return Answer(blocks=({"type": "text", "text": text},) if text else (), stop_reason="end_turn")


def calls(body: Json, wanted: list[tuple[str, Json]]) -> Answer:
    """Return an answer that calls tools.

    The ids of the calls are the same for the same request, and differ within it and along a conversation.
    """
    base = compact_json([body["messages"], wanted])
    blocks = tuple(
        {"type": "tool_use", "id": f"toolu_{_digest(base, str(number))}", "name": name, "input": arguments}
        for number, (name, arguments) in enumerate(wanted)
    )
    return Answer(blocks=blocks, stop_reason="tool_use")


def searched(body: Json, words: str, text: str) -> Answer:
    """Return an answer for which the provider searched the web itself: the search, its result, and the
    text.
    """
    call_id = f"srvtoolu_{_digest(compact_json(body['messages']), words)}"
    blocks = (
        {"type": "server_tool_use", "id": call_id, "name": "web_search", "input": {"query": words}},
        _search_result(call_id, text),
        {"type": "text", "text": text},
    )
    return Answer(blocks=blocks, stop_reason="end_turn")


def paused(answer: Answer) -> Answer:
    """Return the answer cut off in the middle of its first web search, before the result."""
    return Answer(blocks=answer.blocks[:1], stop_reason="pause_turn")


def gone_on(body: Json, answer: Answer) -> Answer:
    """Return the answer with results in front of it for the searches at which the previous answer paused."""
    pending = _pending(body)
    return replace(
        answer, blocks=(*(_search_result(call_id, "later") for call_id in pending), *answer.blocks)
    )


def _pending(body: Json) -> list[str]:
    last = body["messages"][-1]
    if last["role"] != "assistant" or isinstance(last["content"], str):
        return []
    given = {block["tool_use_id"] for block in last["content"] if "tool_use_id" in block}
    asked = [block["id"] for block in last["content"] if block["type"] == "server_tool_use"]
    return [call_id for call_id in asked if call_id not in given]


def _search_result(call_id: str, words: str) -> Json:
    found = {"type": "web_search_result", "url": "https://example.org/", "title": "Example", "page_age": None}
    content = [{**found, "encrypted_content": _digest(words, call_id) * 8}]
    return {"type": "web_search_tool_result", "tool_use_id": call_id, "content": content}


def _chat(body: Json, words: str, after_tools: bool) -> Answer:
    own_words = outside_tags(words).strip() or words
    number = sum(1 for message in body["messages"] if message["role"] == "user")
    choice = (body.get("tool_choice") or {}).get("type")
    tool = _save_tool(body)
    wants_note = REMEMBER.search(own_words) and not ASKS_WHETHER_REMEMBERED.search(own_words)
    if tool and wants_note and choice != "none":
        if after_tools:
            return said(f"I will remember it: {shortened(_worth_keeping(own_words), 200)}")
        return calls(
            body, [(tool["name"], filled(tool["input_schema"], _worth_keeping(own_words), _seqs(words)))]
        )
    if choice in ("any", "tool") and not after_tools:
        forced = _forced_tool(body)
        return calls(body, [(forced["name"], filled(forced["input_schema"], own_words))])
    wanted = (body.get("output_config") or {}).get("format")
    if wanted:
        return said(compact_json(filled(wanted["schema"], own_words)))
    if "?" in own_words:
        found = best_match(_question(own_words), _evidence(body, own_words))
        return said(found or f"I cannot find that in our conversation (message {number}).")
    return said(f"Noted as message {number}: {_repeated(own_words)}")


def _repeated(own_words: str) -> str:
    """Return the beginning of a message, and all marks in the rest of it.

    People of the fault suite find their messages by those marks.
    """
    beginning = shortened(own_words, 80)
    return " ".join([beginning, *(mark for mark in MARK.findall(own_words) if mark not in beginning.split())])


def _question(own_words: str) -> str:
    asked = [sentence for sentence in sentences(own_words) if sentence.endswith("?")]
    return asked[-1] if asked else own_words


def _evidence(body: Json, own_words: str) -> list[str]:
    """Return every statement of the prompt in order, without questions and the newest message."""
    texts = [text_of(body.get("system"))]
    texts += [
        text_of(block.get("content")) if block["type"] == "tool_result" else text_of([block])
        for message in body["messages"]
        for block in blocks_of(message["content"])
    ]
    newest = set(sentences(own_words))
    found = (sentence for text in texts for sentence in sentences(text))
    return [sentence for sentence in found if not sentence.endswith("?") and sentence not in newest]


def _flushed(body: Json, instruction: str) -> Answer:
    tool = _save_tool(body)
    chosen = _salient(body, instruction)
    if _ASKS_FOR_JSON in text_of(body.get("system")):
        notes = [{"kind": "fact", "text": text, "source": seqs[0] if seqs else 0} for text, seqs in chosen]
        return said(compact_json({"notes": notes}))
    if not chosen:
        return said("SILENT")
    if tool is None:
        return said("\n".join(f"fact | {text} | {seqs[0] if seqs else ''}" for text, seqs in chosen))
    return calls(body, [(tool["name"], filled(tool["input_schema"], text, seqs)) for text, seqs in chosen])


def _salient(body: Json, instruction: str) -> list[tuple[str, tuple[int, ...]]]:
    """Return up to three of the person's sentences that no note in the system prompt holds yet, most
    important first.
    """
    known = text_of(body.get("system")) + instruction.partition("<transcript_")[0]
    pool: dict[str, tuple[int, tuple[int, ...]]] = {}
    for message in body["messages"]:
        text = text_of(message["content"])
        if message["role"] != "user" or text == instruction:
            continue
        for sentence in sentences(outside_tags(text)):
            if salience(sentence) > 0 and sentence not in known:
                pool[sentence] = (salience(sentence), _seqs(text))
    for number, words in _SOURCE_LINE.findall(instruction):
        for sentence in sentences(words):
            if salience(sentence) > 0 and sentence not in known:
                pool[sentence] = (salience(sentence), (int(number),))
    ranked = sorted(enumerate(pool.items()), key=lambda item: (-item[1][1][0], -item[0]))
    return [(sentence, seqs) for _, (sentence, (_, seqs)) in ranked[:MAX_NOTES]]


def _worth_keeping(words: str) -> str:
    marked = [sentence for sentence in sentences(words) if REMEMBER.search(sentence)]
    sentence = marked[0] if marked else words
    rest = re.sub(
        r"^.*?\b(?:remember|memori[sz]e|forget|note)\b[\s:,]*(?:that\b)?[\s:,]*",
        "",
        sentence,
        flags=re.IGNORECASE,
    )
    return rest or sentence


def _save_tool(body: Json) -> Json | None:
    return next((tool for tool in body.get("tools") or () if tool.get("name") == "save_memory"), None)


def _forced_tool(body: Json) -> Json:
    name = body["tool_choice"].get("name")
    chosen: Json = next((tool for tool in body["tools"] if tool["name"] == name), body["tools"][0])
    return chosen


def _seqs(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in SEQ.findall(text))


def _digest(*parts: str) -> str:
    return hashlib.sha256("|".join(parts).encode(errors="surrogatepass")).hexdigest()[:24]
