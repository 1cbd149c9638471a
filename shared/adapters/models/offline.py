"""Offline demo that answers without a provider, by quoting the conversation."""

from __future__ import annotations

import asyncio
import hashlib
import html
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from shared.adapters.models.usage_check import size_of
from shared.core.compaction.summary_prompts import END_OF_TEXT
from shared.core.context.prompts import DAY_TAG, base_rules, default_manners, parse_reminder
from shared.core.session.summary import FORMS
from shared.core.session.turns import TITLE_CHARS
from shared.core.tools.reminders import reminder_text
from shared.core.values.errors import PromptTooLong
from shared.core.values.messages import Text, ToolResult, ToolUse, text_of
from shared.core.values.tagged_text import replace_tagged, tagged_passages
from shared.ports import ModelCard, ModelReply, ModelRequest, OnText, Prices, TokenCounter, ToolSpec, Usage
from shared.samples import find_answer

OFFLINE_MODEL = "offline-demo"
"""Name of the offline demo in settings and requests."""
_SAVING_TOOL = "save_memory"
"""Name of the only tool that the demo calls; others would only fill its context."""
WINDOW, MAX_OUTPUT, PIECE_SECONDS = 200_000, 8_192, 0.015
INTRODUCTION = (
    "Hello! I am the offline demo of Evertalk: no model is behind me, so I only repeat what I find in our "
    "conversation. For real answers, run `./evertalk setup` and add a provider's key."
)
"""Beginning of the demo's first answer in a conversation."""
_FOUND, _KEPT, _SAVED = "I found this: ", "I have kept your message: ", "I saved a note: "
_NOTHING = ("I find nothing about that in our conversation.", "Other questions need a real model.")
_ABILITIES = (
    "I can show how Evertalk keeps a conversation.",
    "Tell me something, for example “My dog Bertil is allergic to chicken”, and ask me about it later.",
    "Say “Remember that …”, and I save a note; /memory lists all notes.",
    "/compact summarises older messages, /undo brings them back, and /context shows how full the context is.",
    "/help lists all commands.",
    "I cannot think, calculate or look things up: that needs a real model.",
)
_ASKS_WHAT_IT_IS = re.compile(
    r"(?i)^\W*+((hello|hi|hey)\b[^?]{0,20}$"
    r"|.*\b(what (else )?(can|do) you do|(who|what) are you|how do you work|can you help|help me)\b)"
)
_NO_EVIDENCE = (
    _FOUND, _KEPT, _SAVED, *_NOTHING, *_ABILITIES, INTRODUCTION[:29], "For real answers, run", "(uses ",
    "[Shown in part: ", "Its beginning and its end follow", "[… ",
)  # fmt: skip
"""Beginnings of the demo's own sentences, which it must not quote, and marks of tool calls in transcripts."""
_NOT_ANSWERED = "(not answered)"
_REMEMBER = re.compile(r"(?i)\b((?<!you )(?<!you still )remember|memori[sz]e|(don't|not) forget|note that)\b")
_LEAD_IN = re.compile(rf"{_REMEMBER.pattern}[\s:,]*+(?:that\b|to\b)?[\s:,]*+")
_SENTENCE_END = re.compile(r"(?<=[.!?…])\s+|(?<=[.!?…][\"'”’)\]])\s+|(?<=[。！？])|\n+")
_WORD = re.compile(r"([぀-ヿ㐀-鿿]|[^\W_]+?)(?:['’]?s|ing|e[ds])?(?:(?<=[぀-ヿ㐀-鿿])|\b)")
_COMMON_WORDS = """
a about all also am an and any are at be been but by can could d did do for from had ha have he her here him
hi how i if in is it its just ll m me my no not now of on or our out please re said say she so some t tell
than that the their them then there they thi to too up us ve very wa was we were what when where which who why
will with would you your know remember mention
"""
_COMMON = frozenset(_COMMON_WORDS.split())
_IN_PART = re.compile(r"(?m)^\[(?:Shown in part: |… \d)[^\]\n]*\]\n")
_LINE = re.compile(
    r"(?m)^[^\S\n]*+(?:- )?\[#(\d++).*?\] ?(.{1,80}?): ?(.*(?:\n(?!\s*(?:$|[<{]|\[#|---)).+)*)"
)
_SAID_BY = re.compile(r"^(?:\[#\d[^\]]*\] ?|#\d+ |earlier )[^:]{1,80}: ")
_SAID_AT = re.compile(r"(?<!\s)\s*+\(#\d[^()]*+\)$")
"""Patterns of the marks at recalled or noted sentences: who wrote them, and where."""
_TURN_TAGS = ("user", "assistant", "tool")
_FORMER_TAG = re.compile(r"(?:earlier_summary|part_\d+)_\w+")
_FORMER = re.compile(r'^\{"former narrative":.*\}$', re.MULTILINE)
_NARRATIVE = re.compile(r"<conversation_summary[^>]*>\n.*\n\n((?!#).+)")
_ABOUT_SOMETHING = (r"(?i)\b(i|i['’]m|my|we|our|mine|me)\b", r"\d", r"(?<=[^.!?]\s)[A-ZÀ-Þ]")
_KINDS = {
    "question": r"[?？]$",
    "constraint": r"\b((?<!ave )(?<!ha[sd] )(?<!['’]ve )never|must not|do(n['’]t| not)|allerg\w+|without)\b",
    "decision": r"\b(decided?|decision|agreed|settled on|we chose|let['’]s go with)\b",
    "preference": r"\b(prefers?|likes?|loves?|hates?|favou?rite|rather)\b",
    "goal": r"\b(goal|wants? to|trying to|hop(e|ing) to|plan(ning)? to)\b",
    "action": r"\b(to-?do|needs? to|ha(ve|s) to|next step|remind)\b",
    "artifact": r"https?://|\.(py|md|csv|pdf)\b",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineLine:
    """Sentence that may enter a summary; `seq` is the number of its entry."""

    seq: int
    by_person: bool
    text: str


class OfflineModel:
    """Model client without a provider, with the interface of a real one."""

    def __init__(self, counter: TokenCounter, *, window: int = WINDOW, piece_seconds: float = 0.015) -> None:
        self._counter, self._window, self._piece_seconds = counter, window, piece_seconds

    async def load_card(self, model: str) -> ModelCard:
        """Return the demo's card: free, without images, and with the configured window."""
        return ModelCard(
            name=model, window=self._window, max_output=min(MAX_OUTPUT, self._window // 2), window_known=True,
            prices=Prices(input=0.0, output=0.0, cache_read=0.0, cache_write=0.0, dated="never changes"),
            capabilities=frozenset({"tools", "count_tokens", "json"}), offline=True, token_factor=1.0,
            callable_tools=frozenset({_SAVING_TOOL}),
        )  # fmt: skip

    async def reply(self, request: ModelRequest, *, on_text: OnText | None = None) -> ModelReply:
        """Return the demo's answer, which depends on the request alone.

        `on_text` gets it in pieces with short pauses. Raises PromptTooLong if the request exceeds the
        window.
        """
        tokens = self._count(request)
        if tokens > self._window:
            raise PromptTooLong(f"{tokens} > {self._window}", tokens=tokens, maximum=self._window)
        digest = hashlib.sha256(repr(request.messages).encode()).hexdigest()[:20]
        blocks = _answer(request, digest)
        at_once = _sums_up(request) or find_answer(_find_person_text(request)) is not None
        for piece in re.findall(r"\S+\s*|\s+", text_of(blocks)):
            if on_text is not None:
                await asyncio.sleep(0.0 if at_once else self._piece_seconds)
                await on_text(1, piece)
        told = "\n".join(one.text if isinstance(one, Text) else json.dumps(one.input) for one in blocks)
        return ModelReply(
            blocks=blocks, model=request.model, request_id=f"offline-{digest}",
            usage=Usage(input_tokens=tokens, output_tokens=self._counter.count_tokens(told)),
            stop_reason="tool_use" if isinstance(blocks[0], ToolUse) else "end_turn",
        )  # fmt: skip

    async def count_tokens(self, request: ModelRequest) -> int | None:
        """Return the request's tokens by the program's own counter; never None."""
        return self._count(request)

    async def close(self) -> None:
        """Do nothing: the demo has no connection."""

    def _count(self, request: ModelRequest) -> int:
        """Return the tokens of a request by the program's own counter, so that the gauge is exact."""
        return size_of(request, self._counter.count_tokens)


def _answer(request: ModelRequest, digest: str) -> tuple[Text | ToolUse, ...]:
    whole, results = _newest(request)
    words = _find_person_text(request)
    save = next((tool for tool in request.tools if tool.name == _SAVING_TOOL), None)
    if _sums_up(request):
        asked = "\n\n".join(text_of(message.blocks) for message in request.messages if message.role == "user")
        above = [replace_tagged(text_of(message.blocks), by=" ").strip() for message in request.messages[:-1]]
        return (Text(text=_running_text(asked) if END_OF_TEXT in whole else _ledger(asked, above)),)
    if save is not None and "SILENT" in whole:
        return _saves(save, () if results else _worth_saving(request), digest) or (Text(text="SILENT"),)
    if (reminder := parse_reminder(words)) is not None:
        return (Text(text=reminder_text(reminder)),)
    if (recorded := find_answer(words)) is not None:
        return (Text(text=recorded),)
    if save is None or not _REMEMBER.search(words):
        return (Text(text=_introduce(request, _chat(request, words))),)
    marked = next((line for line in _sentences(words) if _REMEMBER.search(line)), words)
    wish = marked[found.end() :].strip() or marked if (found := _LEAD_IN.search(marked)) else marked
    if not results:
        return _saves(save, [_cut(wish, 400)], digest)
    if failed := next((result.text for result in results if result.is_error), ""):
        return (Text(text=f"I could not save that: {_cut(failed, 200)}"),)
    return (Text(text=_introduce(request, f"{_SAVED}“{_cut(wish, 200)}”")),)


def _newest(request: ModelRequest) -> tuple[str, Sequence[ToolResult]]:
    """Return the person's newest message, and the tool results after it."""
    results: list[ToolResult] = []
    for message in reversed(request.messages):
        results += [block for block in message.blocks if isinstance(block, ToolResult)]
        if message.role == "user" and (whole := text_of(message.blocks)).strip():
            return _IN_PART.sub("", whole), results
    return "", results


def _find_person_text(request: ModelRequest) -> str:
    """Return the person's newest message without what the program added."""
    whole, _ = _newest(request)
    return replace_tagged(whole, by=" ").strip() or whole


def _sums_up(request: ModelRequest) -> bool:
    whole, _ = _newest(request)
    return ('"narrative"' in whole and '"add"' in whole) or END_OF_TEXT in whole


def _introduce(request: ModelRequest, text: str) -> str:
    """Return the answer, with the introduction before it if it is the first of its conversation."""
    told = [(message.role, text_of(message.blocks)) for message in request.messages]
    begun = any((role == "assistant" and said) or "<conversation_summary" in said for role, said in told)
    return text if begun else f"{INTRODUCTION}\n\n{text}"


def _chat(request: ModelRequest, words: str) -> str:
    """Answer a question by the earlier statement that shares most keywords; of equals by the newest."""
    if _ASKS_WHAT_IT_IS.match(" ".join(words.split())):
        return " ".join(_ABILITIES)
    asked = [line for line in _sentences(words) if _kind_of(line) == "question"]
    if not asked:
        return f"{_KEPT}“{_cut(' '.join(words.split()), 120)}”"
    blocks = [block for message in request.messages for block in message.blocks]
    texts = [*request.system, *(block for block in blocks if isinstance(block, Text | ToolResult))]
    bare = [
        part for one in texts
        for part in (*(told.text for told in tagged_passages(one.text) if told.tag != DAY_TAG),
                     replace_tagged(one.text, by=" "))
    ]  # fmt: skip
    wanted = _keywords(asked[-1])
    own = set(_sentences(f"{words}\n{base_rules()}\n{default_manners()}"))
    lines = [_SAID_AT.sub("", _SAID_BY.sub("", line)) for text in bare for line in _sentences(text)]
    said = [
        one.text for one in _list_sentences((0, "tool", line) for line in reversed(lines) if line not in own)
    ]
    best = max(said, key=lambda line: len(wanted & _keywords(line)), default="")
    shared = len(wanted & _keywords(best))
    if best.count("“") != best.count("”"):  # it stood at an end of what an answer quotes
        best = best.strip("“”")
    return f"{_FOUND}“{_cut(best, 400)}”" if shared and shared >= len(wanted) / 4 else " ".join(_NOTHING)


def _worth_saving(request: ModelRequest) -> Sequence[str]:
    """Return at most three important sentences of the person that no note has yet."""
    known = "\n".join(part.text for part in request.system)
    told = [text_of(message.blocks) for message in request.messages[:-1] if message.role == "user"]
    lines = _list_sentences((0, "person", replace_tagged(text, by=" ")) for text in told)
    fresh = [one for one in lines if _weight(one.text) > 1 and one.text not in known]
    return [_cut(one.text, 400) for one in _heaviest(fresh, 3)]


def _saves(tool: ToolSpec, notes: Iterable[str], digest: str) -> tuple[ToolUse, ...]:
    """Return calls of the saving tool for these notes, with all fields that its schema may require."""
    kinds = tool.input_schema["properties"]["kind"]["enum"]
    given = [{"kind": _kind_of(text) if _kind_of(text) in kinds else "fact", "text": text} for text in notes]
    return tuple(
        ToolUse(id=f"toolu_{digest}{number}", name=tool.name, input={**one, "subject": "the person"})
        for number, one in enumerate(given)
    )


def _ledger(asked: str, above: Sequence[str]) -> str:
    """Return a summary in JSON: the former narrative continued, and ledger items with sources."""
    found = _FORMER.search(asked)
    former = json.loads(found[0])["former narrative"] if found else "".join(_NARRATIVE.findall(asked)[:1])
    said = _list_sentences(
        (int(seq), author, _expand(text, above)) for seq, author, text in _LINE.findall(asked)
    )
    before = _fit_lines(50, _sentences(former))
    new = _fit_lines(50, [one.text for one in _heaviest(said, 4) if one.text not in before])
    add = [
        {"kind": _kind_of(one.text), "text": _cut(one.text, 280), "sources": [one.seq],
         "author": "person" if one.by_person else "assistant"} for one in _heaviest(said, 14)
    ]  # fmt: skip
    told = {"narrative": " ".join([*before, *new]), "add": add, "replace": {}, "close": {}}
    if '"title": "' in asked:
        told["title"] = _cut(next((one.text for one in _heaviest(said, 1)), ""), TITLE_CHARS)
    return json.dumps(told, ensure_ascii=False)


def _expand(text: str, above: Sequence[str]) -> str:
    """Return the message of `above` whose beginning is `text`, if that was cut; else `text` itself."""
    start = text.removesuffix(" …").split()
    whole = (one for one in above if text.endswith(" …") and one.split()[: len(start)] == start)
    return next(whole, text)


def _running_text(asked: str) -> str:
    """Return former summaries and the most important new sentences, under headings if requested."""
    forms = [form.headings for form in FORMS.values() if form.headings]
    headings = next((heads for heads in forms if all(f"\n## {head.title}\n" in asked for head in heads)), ())
    found: dict[str, list[str]] = {f"## {head.title}": [] for head in headings} or {"": []}
    first, (former, new) = next(iter(found)), _former_summaries(asked)
    for text in former:
        title = first
        for line in filter(str.strip, text.splitlines()):
            title = line if line in found else title
            found[title] += [] if line in found else [line]
    turns = [
        (0, turn.tag.replace("user", "person"), html.unescape(turn.text))
        for turn in tagged_passages(new, _TURN_TAGS)
    ]
    lines = turns or [(int(seq), author, text) for seq, author, text in _LINE.findall(new)]
    for one in _heaviest(_list_sentences(lines), 12):
        kind = "action" if (kind := _kind_of(one.text)) == "question" else kind
        heads = [head.title for wanted in (kind, "fact") for head in headings if head.kind == wanted]
        found[f"## {heads[0]}" if heads else first].append(f"- {one.text}" if headings else one.text)
    room = int(limit[1]) * 4 // 5 if (limit := re.search(r"\bat most (\d+) words\. ", asked)) else 10_000
    kept = {title: _fit_lines(room // len(found), lines) for title, lines in found.items()}
    return "\n\n".join("\n".join(filter(None, (title, *lines))) for title, lines in kept.items() if lines)


def _former_summaries(asked: str) -> tuple[list[str], str]:
    """Return the former summaries of a request, and the request without them."""
    found = [passage for passage in tagged_passages(asked) if _FORMER_TAG.fullmatch(passage.tag)]
    edges = [0, *(edge for passage in found for edge in (passage.start, passage.end)), len(asked)]
    rest = "".join(asked[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True))
    return [passage.text.strip("\n") for passage in found], rest


def _list_sentences(lines: Iterable[tuple[int, str, str]]) -> list[OfflineLine]:
    """Return each sentence once, without tool calls, the program's own text and answered questions."""
    told = list(lines)
    found: dict[str, OfflineLine] = {}
    machines = ("assistant", "tool", "evertalk", "operator", "program")
    persons = [not author.lower().startswith(machines) for _, author, _ in told]
    last_answer = max((at for at, person in enumerate(persons) if not person), default=-1)
    for at, (seq, _, text) in enumerate(told):
        is_open = at > last_answer or text.endswith(_NOT_ANSWERED)
        for line in _sentences(text.removesuffix(_NOT_ANSWERED)):
            if not line.startswith(_NO_EVIDENCE) and (is_open or _kind_of(line) != "question"):
                found.setdefault(line.casefold(), OfflineLine(seq=seq, by_person=persons[at], text=line))
    return list(found.values())


def _heaviest(said: Sequence[OfflineLine], most: int) -> Sequence[OfflineLine]:
    """Return the `most` most important sentences, ordered by time.

    The person's constraints and last question are always included, even if they exceed `most`.
    """
    persons = [one for one in said if one.by_person]
    must = [one for one in persons if _kind_of(one.text) == "constraint"]
    must += [one for one in persons if _kind_of(one.text) == "question"][-1:]
    ranked = sorted(said, key=lambda one: (one not in must, -_weight(one.text) - 2 * one.by_person))
    return sorted(ranked[: max(most, len(must))], key=said.index)


def _fit_lines(room: int, lines: Iterable[str]) -> list[str]:
    """Return distinct lines of at most `room` words together; the least important ones are dropped first."""
    kept = list(dict.fromkeys(lines))
    for line in sorted(kept, key=_weight):
        if len(" ".join(kept).split()) > room:
            kept.remove(line)
    return kept


def _sentences(text: str) -> list[str]:
    """Return the sentences and lines of a text unchanged, but without list marks."""
    return [line for part in _SENTENCE_END.split(text) if len(line := part.strip().lstrip("-*•> ")) > 1]


def _keywords(text: str) -> set[str]:
    return {word.lower() for word in _WORD.findall(text)} - _COMMON


def _weight(line: str) -> int:
    """Return the importance of a sentence; 0 is small talk or a question."""
    if _kind_of(line) == "question" or len(_keywords(line)) < 2:
        return 0
    first, *others = (bool(re.search(sign, line)) for sign in _ABOUT_SOMETHING)
    return 2 * first + sum(others) + 2 * (_kind_of(line) != "fact")


def _kind_of(line: str) -> str:
    return next((kind for kind, sign in _KINDS.items() if re.search(sign, line, re.IGNORECASE)), "fact")


def _cut(text: str, chars: int) -> str:
    """Return at most `chars` characters, cut at a blank if possible, so that no word or number is split."""
    return text if len(text) <= chars else text[:chars].rsplit(" ", 1)[0]
