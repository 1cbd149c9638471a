"""Takes away what a file declares and never means, and spells the rest in fewer letters: same meaning."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from web.bundling.scripts import Token

_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")
_SHORTER = {"true": ("number", "!0"), "false": ("number", "!1"), "const": ("word", "let")}
_PLAIN = frozenset({"string", "number", "regex"})

Part = Sequence[Token]


def meant(bodies: Sequence[Sequence[Part]], kept: Collection[str]) -> list[list[Part]]:
    """The parts of each body without functions and plain values that no other part names.

    `kept` are the names that are given out. What could do something by being there stays.
    """
    left = [list(body) for body in bodies]
    while True:
        unused = {id(part) for part in _unused([part for body in left for part in body], kept)}
        if not unused:
            return left
        left = [[part for part in body if id(part) not in unused] for body in left]


def _unused(parts: Sequence[Part], kept: Collection[str]) -> Iterator[Part]:
    words = [{token.text for token in part if token.kind == "word"} for part in parts]
    for at, part in enumerate(parts):
        name = _harmless(part)
        elsewhere = any(name in other for place, other in enumerate(words) if place != at)
        if name and name not in kept and not elsewhere:
            yield part


def _harmless(part: Part) -> str:
    """The name of a function, an arrow or a plain value that is declared here, and nothing beside it."""
    texts = [token.text for token in part]
    if texts[:1] == ["async"]:
        texts = texts[1:]
    if texts[:1] == ["function"] and len(texts) > 2 and texts[2] == "(":
        body = _end(part, len(part) - len(texts) + 2) + 1
        return texts[1] if _end(part, body) == len(part) - 1 else ""
    if texts[:1] not in (["const"], ["let"]) or texts[2:3] != ["="] or texts[-1] != ";":
        return ""
    if len(part) == 5 and part[3].kind in _PLAIN:
        return texts[1]
    value = 4 if texts[3] == "async" else 3
    arrow = _end(part, value) + 1 if texts[value] == "(" else value + 1
    alone = all(token.text not in (",", ";") for token in _outermost(part[:-1]))
    return texts[1] if texts[arrow : arrow + 1] == ["=>"] and alone else ""


def _end(part: Part, start: int) -> int:
    """Where the bracket that opens at `start` closes; -1 when none opens there."""
    depth = 0
    for at in range(start, len(part)):
        depth += _step(part[at])
        if depth == 0:
            return at if at > start else -1
    return -1


def _outermost(part: Part) -> Iterator[Token]:
    depth = 0
    for token in part:
        depth += _step(token)
        if depth == 0:
            yield token


def _step(token: Token) -> int:
    if token.kind == "template":
        return token.text.endswith("${") - (token.text[0] == "}")
    return (token.text in _OPENING) - (token.text in _CLOSING) if token.kind == "mark" else 0


def spelt(tokens: Sequence[Token]) -> list[Token]:
    """`let` for const, `!0` for true, no comma before a closing brace, one `let` for many in a row."""
    return list(_joined([_shorter(tokens, at) for at in range(len(tokens)) if not _idle(tokens, at)]))


def _joined(tokens: Sequence[Token]) -> Iterator[Token]:
    """`let a=1;let b=2;` in the same block as `let a=1,b=2;`."""
    declaring = [False]
    """For each bracket that is open, whether a declaration stands in it and has not ended."""
    skipped = False
    for at, token in enumerate(tokens):
        step = _step(token)
        if step > 0:
            declaring.append(False)
        elif step < 0:
            declaring.pop()
        elif skipped:
            skipped = False
            continue
        elif token.text == "let" and _begins(tokens, at):
            declaring[-1] = True
        elif token.text == ";" and token.kind == "mark":
            skipped = declaring[-1] and at + 1 < len(tokens) and tokens[at + 1].text == "let"
            declaring[-1] = skipped
            if skipped:
                yield replace(token, text=",")
                continue
        yield token


def _begins(tokens: Sequence[Token], at: int) -> bool:
    return tokens[at].kind == "word" and (at == 0 or tokens[at - 1].text in (";", "{", "}", "(", ":"))


def _idle(tokens: Sequence[Token], at: int) -> bool:
    # In square brackets a comma may stand for a missing value.
    return tokens[at].text == "," and at + 1 < len(tokens) and tokens[at + 1].text in ("}", ")")


def _shorter(tokens: Sequence[Token], at: int) -> Token:
    token = tokens[at]
    if token.kind != "word" or token.text not in _SHORTER:
        return token
    before = tokens[at - 1].text if at else ""
    after = tokens[at + 1] if at + 1 < len(tokens) else None
    # As names of properties they mean themselves; behind a `?` nobody can tell from here.
    if before in (".", "?.") or (after is not None and after.text in (":", "(", "=")):
        return token
    kind, text = _SHORTER[token.text]
    return replace(token, kind=kind, text=text)
