"""Reads which names a script declares, in which function, and where each of them is meant."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field

from web.bundling.scripts import NotUnderstood, Token

_KEYWORDS = (
    "await break case catch class const continue debugger default delete do else enum export extends "
    "false finally for function if import in instanceof let new null return static super switch this throw "
    "true try typeof var void while with yield async of as arguments eval undefined NaN "
    "Infinity"
)
KEYWORDS = frozenset(_KEYWORDS.split())
_BLOCK_AFTER = frozenset({"else", "do", "try", "finally", "catch"})
_OBJECT_AFTER = frozenset(
    {"return", "typeof", "in", "of", "await", "yield", "throw", "default", "const", "let", "case"}
)
_NO_PARAMETERS = frozenset({"if", "for", "while", "with", "switch"})
_MODIFIERS = frozenset({"get", "set", "async", "static"})
_ENDS = frozenset({")", "]", "}", "++", "--"})
_BEGINS_ANEW = frozenset({"{", "++", "--", "!", "~"})


@dataclass(slots=True, eq=False)
class Scope:
    """What one function spans, its parameters included; the outermost is the whole text."""

    parent: Scope | None = None
    head: bool = False
    """Its parameters are being read."""
    firm: set[str] = field(default_factory=set)
    """Parameters, and what is declared at the top of its body: here these names mean nothing else."""
    loose: set[str] = field(default_factory=set)
    """What is declared in a block of it; beside that block the same name may mean something outside."""
    asked: set[str] = field(default_factory=set)
    """What the parameters name: they cannot see into the body."""

    def around(self) -> Iterator[Scope]:
        """This scope and all that it stands in, from the inside out."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent


@dataclass(slots=True)
class Names:
    """Which tokens are names of values, which of those are keys as well, and where each is used."""

    used: dict[int, Scope] = field(default_factory=dict)
    shorthand: set[int] = field(default_factory=set)


def read(tokens: Sequence[Token]) -> Names:
    """Raises NotUnderstood where it is not clear how far a function goes or what a name means."""
    return _ScopeReader(tokens).read()


def owner(name: str, scope: Scope, top: Container[str]) -> Scope | None:
    """The function whose name this is, used in this scope; none for those of the top and for strange ones.

    What a block declares counts for its whole function; where a function around it knows the same name,
    both are taken for one thing, which then gets one new name as it had one before.
    """
    found = None
    for one in scope.around():
        if name in one.firm:
            return one
        if name in one.loose:
            found = one
    return None if name in top else found


def declared(tokens: Sequence[Token]) -> set[str]:
    """Every name that is declared anywhere in a script. Raises NotUnderstood."""
    return set[str]().union(*(scope.firm | scope.loose for scope in read(tokens).used.values()))


@dataclass(slots=True)
class _Frame:
    kind: str
    """( [ ${ block, object or class"""
    start: int
    ternaries: int = 0
    pattern: bool = False
    """What stands in it is given new names: parameters, or what const and let take apart."""
    body: bool = False
    """It is the body of a function."""


@dataclass(frozen=True, slots=True)
class _Arrow:
    """A function whose body is one expression: it ends with the bracket around it, or at a , ; or :"""

    depth: int
    ternaries: int


class _ScopeReader:
    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens
        self._frames = [_Frame(kind="block", start=-1)]
        self._names = Names()
        self._class_at: list[int] = []
        self._lists = _parameter_lists(tokens)
        self._list_ends = set(self._lists.values())
        self._scope = Scope()
        self._arrows: list[_Arrow] = []

    def read(self) -> Names:
        for at, token in enumerate(self._tokens):
            if self._arrows and token.newline and self._arrows[-1].depth == len(self._frames):
                self._same_statement(at, token)
            if token.kind == "template":
                self._template(at, token)
            elif token.kind == "word":
                self._word(at, token.text)
            elif token.kind == "mark":
                self._mark(at, token.text)
        return self._names

    def _text(self, at: int) -> str:
        return self._tokens[at].text if 0 <= at < len(self._tokens) else ""

    def _template(self, at: int, token: Token) -> None:
        if token.text[0] == "}":
            self._end_arrows()
            self._frames.pop()
        if token.text.endswith("${"):
            self._frames.append(_Frame(kind="${", start=at))

    # ---- brackets ----

    def _mark(self, at: int, text: str) -> None:
        frame = self._frames[-1]
        if text == "?":
            frame.ternaries += 1
        elif text == ":":
            self._end_arrows(ternaries=frame.ternaries)
            frame.ternaries -= frame.ternaries > 0
        elif text in (",", ";"):
            self._end_arrows()
        elif text == "=>":
            if self._text(at + 1) != "{":
                self._arrows.append(_Arrow(len(self._frames), frame.ternaries))
        elif text in ("(", "[", "{"):
            self._open(at, text)
        elif text in (")", "]", "}"):
            self._end_arrows()
            self._close(self._frames.pop())

    def _open(self, at: int, text: str) -> None:
        kind = self._brace(at) if text == "{" else text
        pattern = at in self._lists or (kind in ("[", "object") and self._opens_pattern(at))
        body = kind == "block" and (self._text(at - 1) == "=>" or at - 1 in self._list_ends)
        self._frames.append(_Frame(kind=kind, start=at, pattern=pattern, body=body))
        if at in self._lists:
            self._scope = Scope(parent=self._scope, head=True)

    def _close(self, frame: _Frame) -> None:
        if frame.start in self._lists:
            self._scope.head = False
        if frame.body:
            self._leave()

    # ---- functions ----

    def _leave(self) -> None:
        if self._scope.parent is None:
            raise NotUnderstood("a function ends that has not begun")
        self._scope = self._scope.parent

    def _end_arrows(self, *, ternaries: int | None = None) -> None:
        """Those whose expression ends at this mark; a `:` ends only what its own `?` stands outside of."""
        while self._arrows and self._arrows[-1].depth == len(self._frames):
            if ternaries is not None and self._arrows[-1].ternaries != ternaries:
                return
            self._arrows.pop()
            self._leave()

    def _same_statement(self, at: int, token: Token) -> None:
        """A line may end a statement without a semicolon: then nobody knows how far an arrow goes."""
        last = self._tokens[at - 1]
        if last.kind == "mark" and last.text not in _ENDS:
            return
        goes_on = token.kind == "mark" and token.text not in _BEGINS_ANEW
        if not goes_on and token.text not in ("instanceof", "in"):
            raise self._unclear(at)

    def _opens_pattern(self, at: int) -> bool:
        before, frame = self._text(at - 1), self._frames[-1]
        if before in ("const", "let") or (before == "(" and self._text(at - 2) == "catch"):
            return True
        return frame.pattern and before in ("(", "[", "{", ",", ":", "...") and not frame.ternaries

    def _brace(self, at: int) -> str:
        if self._class_at and self._class_at[-1] == len(self._frames):
            self._class_at.pop()
            return "class"
        before = self._tokens[at - 1] if at else None
        if before is None:
            return "block"
        if before.kind == "word" and self._text(at - 2) not in (".", "?."):
            if before.text in _BLOCK_AFTER:
                return "block"
            if before.text in _OBJECT_AFTER:
                return "object"
        if before.kind == "template" and before.text.endswith("${"):
            return "object"
        if before.kind != "mark":
            raise self._unclear(at)
        return self._brace_after(at, before.text)

    def _brace_after(self, at: int, mark: str) -> str:
        frame = self._frames[-1]
        if mark in (")", "=>"):
            return "block"
        if mark in (";", "{", "}"):
            if frame.kind != "block":
                raise self._unclear(at)
            return "block"
        if mark == ":" and frame.kind == "block" and not self._after_ternary(at - 1):
            return "block"
        if mark == "]":
            raise self._unclear(at)
        return "object"

    def _after_ternary(self, colon: int) -> bool:
        """Whether this `:` in a block belongs to a `?`, not to a case or a label."""
        depth = 0
        for at in range(colon - 1, self._frames[-1].start, -1):
            text, kind = self._text(at), self._tokens[at].kind
            if kind == "mark":
                depth += (text in (")", "]", "}")) - (text in ("(", "[", "{"))
                if not depth and text in ("?", ";"):
                    return text == "?"
            elif not depth and kind == "word" and text in ("case", "default"):
                return False
        return False

    # ---- words ----

    def _word(self, at: int, text: str) -> None:
        before, after = self._text(at - 1), self._text(at + 1)
        frame = self._frames[-1]
        if before in (".", "?.") or text[0] == "#":
            return None
        if self._is_key(at, frame, before):
            if frame.kind == "class" or after in (":", "("):
                return None
            if self._tokens[at + 1].kind in ("word", "string") or after in ("[", "*"):
                if text in _MODIFIERS:
                    return None
            elif after in (",", "}", "="):
                self._names.shorthand.add(at)
                return self._name(at, text, declares=frame.pattern)
            raise self._unclear(at)
        if text == "class":
            self._class_at.append(len(self._frames))
        if text not in KEYWORDS or text in ("of", "as", "async"):
            self._name(at, text, declares=self._declares(at, frame, before))
        return None

    def _is_key(self, at: int, frame: _Frame, before: str) -> bool:
        start = frame.start == at - 1
        modified = before in _MODIFIERS and self._tokens[at - 1].kind == "word"
        if frame.kind == "object":
            return start or before == "," or (modified and self._is_key(at - 1, frame, self._text(at - 2)))
        if frame.kind != "class":
            return False
        if before == "*" or modified:
            return self._is_key(at - 1, frame, self._text(at - 2))
        return start or before in (";", "}")

    def _declares(self, at: int, frame: _Frame, before: str) -> bool:
        if before in ("const", "let", "class", "function") or (
            before == "*" and self._text(at - 2) == "function"
        ):
            return True
        if self._text(at + 1) == "=>" or (before == "(" and self._text(at - 2) == "catch"):
            return True
        first = frame.start == at - 1 or before in (",", "...")
        return frame.pattern and not frame.ternaries and (first or (frame.kind == "object" and before == ":"))

    def _name(self, at: int, text: str, *, declares: bool) -> None:
        if self._text(at + 1) == "=>":
            self._scope = Scope(parent=self._scope)
        scope = self._scope
        self._names.used[at] = scope
        if declares and self._firm(at):
            if not scope.head and text in scope.asked - scope.firm:
                raise self._unclear(at)
            scope.firm.add(text)
        elif declares:
            scope.loose.add(text)
        else:
            for outer in scope.around():
                if outer.head:
                    outer.asked.add(text)

    def _firm(self, at: int) -> bool:
        """Whether the function it stands in knows nothing else by this name."""
        if self._text(at + 1) == "=>":
            return True
        frame = next(one for one in reversed(self._frames) if not self._takes_apart(one))
        declaring = self._text(at - 1) not in ("function", "class", "*")
        return frame.start in self._lists or (frame.body and declaring)

    def _takes_apart(self, frame: _Frame) -> bool:
        return frame.pattern and frame.kind in ("[", "object")

    def _unclear(self, at: int) -> NotUnderstood:
        around = " ".join(token.text for token in self._tokens[max(at - 4, 0) : at + 3])
        return NotUnderstood(f"it is not clear what stands in the middle of: {around}")


def _parameter_lists(tokens: Sequence[Token]) -> dict[int, int]:
    """Where `(` and `)` of parameters stand: those that are followed by a body or an arrow."""
    found, opened = dict[int, int](), list[int]()
    for at, token in enumerate(tokens):
        if token.kind != "mark":
            continue
        if token.text == "(":
            opened.append(at)
        elif token.text == ")":
            start = opened.pop()
            after = tokens[at + 1].text if at + 1 < len(tokens) else ""
            before = tokens[start - 1].text if start else ""
            if after == "=>" or (after == "{" and before not in _NO_PARAMETERS):
                found[start] = at
    return found
