"""Gives what the tops of several modules declare different names, so that they can share one file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, count

from web.bundling.modules import Module
from web.bundling.scopes import owner, read
from web.bundling.scripts import Token

_Thing = tuple[str, str]
"""The module that declares it, and its name there."""


def apart(inside: Sequence[Module], modules: Mapping[str, Module]) -> list[Module]:
    """The modules of one file with one name for each thing and one thing for each name.

    Most keep their names; what is declared twice, or imported as something else, gets another one.
    Raises NotUnderstood where it is not clear what a name means.
    """
    tops = [_Top(module, modules) for module in inside]
    names: dict[_Thing, str] = {}
    for thing in dict.fromkeys(thing for top in tops for thing in top.things.values()):
        called = dict.fromkeys(name for top in tops for name, meant in top.things.items() if meant == thing)
        fresh = (f"{thing[1]}${at}" for at in count(2))
        taken = set(names.values())
        names[thing] = next(
            name
            for name in chain(called, fresh)
            if name not in taken and all(top.may_call(thing, name) for top in tops)
        )
    return [top.renamed(names) for top in tops]


class _Top:
    """What the names at the top of one module mean."""

    def __init__(self, module: Module, modules: Mapping[str, Module]) -> None:
        self._module = module
        self.things = {name: (module.name, name) for name in sorted(module.declared)}
        for source, outside, local in module.imports:
            self.things[local] = (source, modules[source].exports.get(outside, outside))
        self._names = read(module.body)
        self._words = {module.body[at].text for at in self._names.used}
        self._strange = {
            name
            for at, scope in self._names.used.items()
            if (name := module.body[at].text) not in self.things and owner(name, scope, ()) is None
        }

    def may_call(self, thing: _Thing, name: str) -> bool:
        """Whether in this module nobody else could be meant by the name, nor hide it."""
        if self.things.get(name) == thing:
            return True
        return name not in (self._words if thing in self.things.values() else self._strange)

    def renamed(self, names: Mapping[_Thing, str]) -> Module:
        new = {name: names[thing] for name, thing in self.things.items()}
        module = self._module
        return replace(
            module,
            imports=tuple((source, outside, new[local]) for source, outside, local in module.imports),
            exports={outside: new[local] for outside, local in module.exports.items()},
            declared=frozenset(new[name] for name in module.declared),
            body=tuple(self._body(new)),
        )

    def _body(self, new: Mapping[str, str]) -> Iterator[Token]:
        for at, token in enumerate(self._module.body):
            scope, name = self._names.used.get(at), token.text
            if scope is None or name not in new or new[name] == name or owner(name, scope, new) is not None:
                yield token
                continue
            if at in self._names.shorthand:
                yield from (token, Token(kind="mark", text=":", newline=False))
            yield replace(token, text=new[name], newline=token.newline and at not in self._names.shorthand)
