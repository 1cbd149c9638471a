"""Filter that hides what servers leave in an answer's text: thoughts in tags, and tool calls as text.

Servers pass these on if their parser does not know a model's template. Tags count where a template writes
them: a thought at the beginning of an answer, a call at the beginning of a line; not in prose or in a block
of code.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

THOUGHTS: Mapping[str, str] = {
    "<think>": "</think>",  # DeepSeek, Qwen, GLM, MiniMax and most others
    "<thinking>": "</thinking>",
    "<thought>": "</thought>",  # Gemma, Gemini by gateways
    "<thoughts>": "</thoughts>",
    "<reasoning>": "</reasoning>",
    "<reason>": "</reason>",
    "<reflection>": "</reflection>",  # Reflection
    "<scratchpad>": "</scratchpad>",  # by prompts
    "<analysis>": "</analysis>",
    "<antThinking>": "</antThinking>",
    "<Think>": "</Think>",
    "<THINK>": "</THINK>",
    "<Thinking>": "</Thinking>",
    "<Thought>": "</Thought>",
    "<|think|>": "<|/think|>",
    "<|channel>thought": "<channel|>",  # Gemma 4
    "<seed:think>": "</seed:think>",  # ByteDance Seed
    "[THINK]": "[/THINK]",  # Mistral Magistral
    "◁think▷": "◁/think▷",  # Kimi
    "<|begin_of_thought|>": "<|end_of_thought|>",  # Sky-T1
    "<|START_THINKING|>": "<|END_THINKING|>",  # Cohere
    "<unused94>thought": "<unused95>",  # MedGemma
    "<|channel|>analysis<|message|>": "<|end|>",  # gpt-oss, Harmony
    "<|channel|>commentary<|message|>": "<|end|>",
}
"""Opening and closing tags of thoughts, with the models that write them."""

CALLS: Mapping[str, str] = {
    "<tool_call>": "</tool_call>",  # Hermes, Qwen, GLM
    "<function_call>": "</function_call>",
    "<tool_calls>": "</tool_calls>",
    "<function_calls>": "</function_calls>",  # Claude, by templates
    "<invoke name=": "</invoke>",
    "<tool_code>": "</tool_code>",
    "```tool_code": "```",  # Gemini, Gemma
    "<start_function_call>": "<end_function_call>",  # FunctionGemma
    "<|tool_call>": "<tool_call|>",  # Gemma 4
    "<TOOLCALL>": "</TOOLCALL>",  # Nemotron
    "[TOOL_REQUEST]": "[END_TOOL_REQUEST]",  # LM Studio
    "<|tool_call_start|>": "<|tool_call_end|>",  # LFM
    "<|action_start|>": "<|action_end|>",  # InternLM
    "<｜DSML｜function_calls>": "</｜DSML｜function_calls>",  # DeepSeek
    "<|tool_call|>": "<|/tool_call|>",  # Granite, Phi
    "<|tool_calls_section_begin|>": "<|tool_calls_section_end|>",  # Kimi
    "<｜tool▁calls▁begin｜>": "<｜tool▁calls▁end｜>",  # DeepSeek
    "<minimax:tool_call>": "</minimax:tool_call>",
    "<|python_tag|>": "<|eom_id|>",  # Llama
    "<function=": "</function>",  # Llama
    "[TOOL_CALLS]": "",  # Mistral: up to the end
    "<|channel|>commentary to=": "<|call|>",  # gpt-oss
}
"""Opening and closing tags of calls; an empty closing tag means the end of the answer."""

MARKS: Sequence[str] = (
    "<|start|>assistant", "<|channel|>final<|message|>", "<|end|>", "<|return|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>",
    "<|begin_of_solution|>", "<|end_of_solution|>",
)  # fmt: skip
"""Marks between the parts of an answer; they count only after a thought or at the beginning."""

LAST_MARKS: Sequence[str] = (
    "<|im_end|>", "</s>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "<turn|>", "<|endoftext|>", "<|end_of_text|>",
    "<｜end▁of▁sentence｜>", "<|end|>", "<|return|>", "<|END_OF_TURN_TOKEN|>", "<eos>",
)  # fmt: skip
"""Marks at the end of an answer that servers leave in its text; elsewhere they count as text."""

_ENDS_OF_SENTENCES = (".", "!", "?", "…", "。", "！", "？", ")", "\n")
_FENCE = re.compile(r"^ {0,3}(?:`{3,}|~{3,})", re.MULTILINE)
_LONGEST = max(map(len, (*THOUGHTS, *THOUGHTS.values(), *CALLS, *CALLS.values(), *MARKS, *LAST_MARKS)))
_TAIL_CHARS = 200
"""Characters of visible text kept to recognise the beginning of a line and an open code fence."""


class HiddenText:
    """Filter for one answer: `add` takes pieces of text and returns what people may see."""

    def __init__(self, *, tags: Mapping[str, str] | None = None, begins_in_thought: bool = False) -> None:
        """Start a filter; `tags` are an operator's further tags of thoughts, closing tag by opening tag.

        `begins_in_thought` is true for a model whose template opens the thought in the prompt: its text is
        held until the thought is closed.
        """
        self._thoughts = {**THOUGHTS, **(tags or {})}
        self._closings = tuple(dict.fromkeys(self._thoughts.values()))
        self._openings = (*self._thoughts, *CALLS, *MARKS, *LAST_MARKS)
        self._longest = max(_LONGEST, *map(len, (*self._openings, *self._closings)))
        self._first_chars = frozenset(tag[0] for tag in (*self._openings, *self._closings) if tag)
        self._pending = ""
        """Text that may be the beginning of a tag."""
        self._until: str | None = None
        """Closing tag of the hidden text.

        None outside of hidden text, "" if it extends to the end of the answer.
        """
        self._held: list[str] | None = [] if begins_in_thought else None
        """Text that is held because the answer may have begun inside a thought; None if it cannot have."""
        self._at_start = True
        self._blanks = ""
        self._marked = False
        """Whether this answer uses marks between its parts."""
        self._line = ""
        """End of the visible text, by which the beginning of a line is recognised."""
        self._in_fence = False
        self.has_thoughts = False
        self.has_calls = False
        self.withdrawn = False
        """Whether text that was already returned was a thought, so that the caller must remove it."""

    def add(self, piece: str) -> str:
        """Return the visible text that this piece adds; "" if all is hidden or held."""
        if self._is_plain(piece):
            self._note(piece)
            return piece
        self._pending += piece
        return self._hold(self._consume(last=False))

    def end(self) -> str:
        """Return the text held at the end of the answer, which was neither tag nor thought."""
        visible = self._consume(last=True)
        held, self._held = self._held, None
        if held is None:
            return visible
        return "".join([*held, visible])

    def take_withdrawn(self) -> bool:
        """Return whether returned text turned out to be a thought since the last call, and must be removed."""
        withdrawn, self.withdrawn = self.withdrawn, False
        return withdrawn

    def _is_plain(self, piece: str) -> bool:
        if self._pending or self._at_start or self._until is not None or self._held is not None:
            return False
        return self._first_chars.isdisjoint(piece)

    def _hold(self, visible: str) -> str:
        if self._held is None:
            return visible
        self._held.append(visible)
        return ""

    def _consume(self, *, last: bool) -> str:
        shown: list[str] = []
        while self._pending:
            before = len(self._pending)
            if self._until is None:
                done = self._read_visible(shown, last=last)
            else:
                done = self._skip_hidden(last=last)
            if done or len(self._pending) == before:
                break
        return "".join(shown)

    def _skip_hidden(self, *, last: bool) -> bool:
        """Drop text up to the closing tag; return True if more text is needed."""
        closing = self._until or ""
        at = self._pending.find(closing) if closing else -1
        if at < 0:
            keep = 0 if last or not closing else _tail_of(self._pending, (closing,))
            self._pending = self._pending[len(self._pending) - keep :]
            return True
        self._pending = self._pending[at + len(closing) :]
        self._until, self._at_start = None, True
        return False

    def _read_visible(self, shown: list[str], *, last: bool) -> bool:
        """Append visible text up to the next tag to `shown`; return True if more text is needed."""
        if self._at_start and not self._set_blanks_aside(last=last):
            return True
        at = self._find_candidate()
        if at is None:
            self._show(shown, self._pending)
            self._pending = ""
            return True
        self._show(shown, self._pending[:at])
        self._pending = self._pending[at:]
        if not last and self._may_grow():
            return True
        self._read_tag(shown)
        return False

    def _set_blanks_aside(self, *, last: bool) -> bool:
        """Hold blanks before the first text, which are dropped with a thought.

        Returns False if no other text is there yet.
        """
        text = self._pending.lstrip()
        blanks = self._pending[: len(self._pending) - len(text)]
        if not text and not last:
            return False
        self._blanks = "" if self.has_thoughts else self._blanks + blanks
        self._pending = text
        if not text:
            self._pending, self._blanks = self._blanks, ""
            self._at_start = False
        return True

    def _find_candidate(self) -> int | None:
        return next((at for at, char in enumerate(self._pending) if char in self._first_chars), None)

    def _may_grow(self) -> bool:
        """Return whether more text may turn the pending text into a tag, or decide about one."""
        text = self._pending[: self._longest]
        for tag in (*self._openings, *self._closings):
            if len(self._pending) < len(tag) and tag.startswith(text):
                return True
        bare = text.rstrip()
        return any(bare == tag for tag in (*self._closings, *LAST_MARKS))

    def _read_tag(self, shown: list[str]) -> None:
        """Process the tag at the beginning of the pending text; if there is none, show one character."""
        text = self._pending
        if text.rstrip() in LAST_MARKS and not (text.startswith("</s>") and "<s>" in self._line):
            self._pending = ""
            return
        opening = _longest_match(text, self._thoughts)
        call = _longest_match(text, CALLS)
        if call and (self._at_line_start() or self._marked) and not self._in_fence:
            self.has_calls = True
            self._until = CALLS[call]
            self._pending = text[len(call) :] or ""
            if not self._until:
                self._pending = ""
            return
        if opening and self._at_start:
            self.has_thoughts, self._blanks = True, ""
            self._marked = self._marked or opening.startswith("<|")
            self._until = self._thoughts[opening]
            self._pending = text[len(opening) :]
            return
        mark = _longest_match(text, MARKS)
        if mark and (self._marked or self._at_start):
            self._marked, self._at_start = True, True
            self._pending = text[len(mark) :]
            return
        if (closing := _longest_match(text, self._closings)) and self._closes_unseen(text[len(closing) :]):
            self._withdraw(shown)
            self._pending = text[len(closing) :]
            return
        self._show(shown, text[0])
        self._pending = text[1:]

    def _closes_unseen(self, after: str) -> bool:
        """Return whether a closing tag ends a thought that began in the prompt."""
        if self.has_thoughts or self._in_fence or self._line.endswith(("`", "'", '"')):
            return False
        if self._at_start or self._held is not None or not after or after[0] in "\r\n":
            return True
        return self._line.endswith(_ENDS_OF_SENTENCES) and after[0].isalnum()

    def _withdraw(self, shown: list[str]) -> None:
        shown.clear()
        self.withdrawn = self._held is None
        self._held = None
        self.has_thoughts, self._at_start, self._line, self._in_fence = True, True, "", False

    def _at_line_start(self) -> bool:
        return self._at_start or not self._line.rpartition("\n")[2].strip()

    def _show(self, shown: list[str], text: str) -> None:
        if text:
            text, self._blanks = self._blanks + text, ""
            shown.append(text)
            self._note(text)

    def _note(self, text: str) -> None:
        if text.strip():
            self._at_start = False
        line = self._line + text
        if "```" in line or "~~~" in line:
            fences = len(_FENCE.findall(line)) - len(_FENCE.findall(self._line))
            self._in_fence ^= bool(fences % 2)
        self._line = line[-_TAIL_CHARS:]


def _longest_match(text: str, tags: Mapping[str, str] | Sequence[str]) -> str:
    return max((tag for tag in tags if tag and text.startswith(tag)), key=len, default="")


def _tail_of(text: str, tags: Sequence[str]) -> int:
    """Return how many characters at the end of a text may be the beginning of a tag."""
    longest = max(map(len, tags))
    for length in range(min(longest - 1, len(text)), 0, -1):
        if any(tag.startswith(text[-length:]) for tag in tags):
            return length
    return 0
