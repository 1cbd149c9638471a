"""Gives the inner names of a script short ones, so that nothing can be mixed up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count, product, takewhile
from operator import ne

from web.bundling.scopes import KEYWORDS, Names, Scope, owner, read
from web.bundling.scripts import Token

LETTERS = "etnaoirscludhpmfgvbwykxjqzETNAOIRSCLUDHPMFGVBWYKXJQZ"
"""Those first that stand in scripts anyway: what repeats is packed smaller."""
_BEGINS = frozenset({"const", "let", "function", "class", "async"})

Part = Sequence[Token]
_Thing = tuple[Scope, str]
"""What a name means in one function."""


def spare_names(taken: Collection[str], *, at_least: int, letters: str = LETTERS) -> Iterator[str]:
    """All names that are not taken, the shortest first."""
    for length in count(at_least):
        for chosen in product(letters, repeat=length):
            if (name := "".join(chosen)) not in taken:
                yield name


class Shortener:
    """One file's names: those of its top are the same everywhere, those of a function are its own.

    Two functions may give the same short name to different things unless one stands in the other and
    means both. Raises NotUnderstood.
    """

    def __init__(
        self,
        bodies: Sequence[Sequence[Token]],
        top: Collection[str],
        keep: Collection[str],
        *,
        letters: str = LETTERS,
        fixed: Mapping[str, str] | None = None,
    ) -> None:
        """`fixed` says which short names some of the top must have: nobody else may use those."""
        self._letters = letters
        self._keep = KEYWORDS | set(keep)
        self._top = set(top)
        self._parts = [[(part, read(part)) for part in parts(body)] for body in bodies]
        every = [(part, names, self._meant(part, names)) for body in self._parts for part, names in body]
        often = Counter(part[at].text for part, names, _ in every for at in names.used)
        strange = ({part[at].text for at in names.used if at not in owner} for part, names, owner in every)
        self._foreign = (set[str]().union(*strange) - self._top) | self._keep
        given = {name: short for name, short in (fixed or {}).items() if name not in self._keep}
        ranked = sorted(self._top - self._keep - given.keys(), key=lambda name: (-often[name], name))
        free = self._free(self._foreign | set(given.values()), at_least=2)
        self.top = given | dict(zip(ranked, free, strict=False))
        self._taken = self._foreign | set(self.top.values())

    def bodies(self) -> list[list[Token]]:
        """The scripts with the other names."""
        return [
            [token for part, names in body for token in self._renamed(part, names)] for body in self._parts
        ]

    def _free(self, taken: Collection[str], *, at_least: int) -> Iterator[str]:
        return spare_names(taken, at_least=at_least, letters=self._letters)

    def _meant(self, part: Part, names: Names) -> dict[int, Scope]:
        """The function that each name of an inner thing belongs to."""
        found: dict[int, Scope] = {}
        for at, scope in names.used.items():
            if there := owner(part[at].text, scope, self._top):
                found[at] = there
        return found

    def _renamed(self, part: Part, names: Names) -> Iterator[Token]:
        short = self._short_names(part, names)
        for at, token in enumerate(part):
            if at not in short:
                yield token
                continue
            if at in names.shorthand:
                yield from (token, Token(kind="mark", text=":", newline=False))
            yield replace(token, text=short[at], newline=token.newline and at not in names.shorthand)

    def _short_names(self, part: Part, names: Names) -> dict[int, str]:
        """The new name at each place that gets one."""
        meant = self._meant(part, names)
        own: dict[Scope, Counter[str]] = {}
        through: dict[Scope, set[_Thing]] = {}
        for at, there in meant.items():
            own.setdefault(there, Counter())[part[at].text] += 1
            for scope in takewhile(partial(ne, there), names.used[at].around()):
                through.setdefault(scope, set()).add((there, part[at].text))
        new: dict[_Thing, str] = {}
        for scope in sorted(own, key=lambda one: sum(1 for _ in one.around())):
            taken = self._taken.union(new[thing] for thing in through.get(scope, ()) if thing in new)
            ranked = [name for name, _ in own[scope].most_common() if name not in self._keep]
            found = zip(ranked, self._free(taken, at_least=1), strict=False)
            new |= {(scope, name): short for name, short in found}
        short = {at: new.get((there, part[at].text), part[at].text) for at, there in meant.items()}
        return {at: self.top[part[at].text] for at in names.used if part[at].text in self.top} | short


def parts(tokens: Sequence[Token]) -> Iterator[list[Token]]:
    """What one declaration of the top spans, with the statements behind it."""
    part: list[Token] = []
    depth = 0
    for token in tokens:
        if token.kind == "word" and not depth and token.text in _BEGINS:
            if part and part[-1].text in (";", "}"):
                yield part
                part = []
        elif token.kind == "template":
            depth += token.text.endswith("${") - (token.text[0] == "}")
        elif token.kind == "mark":
            depth += (token.text in ("(", "[", "{")) - (token.text in (")", "]", "}"))
        part.append(token)
    yield part
