"""Joins the widget's modules into few small files: same code, same order, each module in one file only."""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter

from web.bundling import squeezing
from web.bundling.joining import apart
from web.bundling.modules import WINDOWS_OWN, Module, PackingRefused, read
from web.bundling.scopes import KEYWORDS
from web.bundling.scripts import NotUnderstood, Token, tokens
from web.bundling.shortening import Shortener, parts, spare_names
from web.bundling.trimming import meant, spelt


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A file that is made of modules; it has the name of the module that others ask for."""

    name: str
    modules: tuple[str, ...]


def pack(
    sources: Mapping[str, str], first: Sequence[Sequence[str]], *, short_names: bool = True
) -> dict[str, str]:
    """The packed files by name. `first` says which modules are asked for, together, in the usual order.

    What those need goes into the earliest file that needs it. A module behind `import()` becomes a file
    of its own, with all that nothing else needs. Raises PackingRefused for whatever could change what the
    code does.
    """
    modules = _reached(sources, first)
    chunks = _chunks(modules, first)
    modules = _distinct(chunks, modules)
    where = {name: chunk.name for chunk in chunks for name in chunk.modules}
    _acyclic(modules, where)
    known = _between(modules, where) if short_names else {}
    return {
        chunk.name: _Joined(chunk, modules, where, known).text(short_names=short_names) for chunk in chunks
    }


def squeeze(text: str) -> str:
    """One script that is not joined with others. Raises PackingRefused."""
    try:
        return squeezing.script(tokens(text))
    except NotUnderstood as unclear:
        raise PackingRefused(str(unclear)) from unclear


def _reached(sources: Mapping[str, str], first: Sequence[Sequence[str]]) -> dict[str, Module]:
    found: dict[str, Module] = {}
    waiting = [(name, "every page") for group in first for name in group]
    while waiting:
        name, asker = waiting.pop()
        if name in found:
            continue
        if name not in sources:
            raise PackingRefused(f"{asker}: {name} is asked for, but there is no such file")
        found[name] = module = read(name, sources[name])
        waiting += [(need, name) for need in (*module.needs, *sorted(module.dynamic))]
    return found


def _between(modules: Mapping[str, Module], where: Mapping[str, str]) -> dict[tuple[str, str], str]:
    """Short names, the same in every file, for what files take from each other by plain imports.

    What is asked for by name, through `import()`, keeps its name.
    """
    by_name = set(where.values()).union(*(module.dynamic for module in modules.values()))
    asked = Counter(
        (source, outside)
        for module in modules.values()
        for source, outside, _ in module.imports
        if where[source] != where[module.name] and source not in by_name
    )
    words = {token.text for module in modules.values() for token in module.body if token.kind == "word"}
    free = spare_names(words | KEYWORDS | WINDOWS_OWN, at_least=2)
    return dict(zip(sorted(asked, key=lambda thing: (-asked[thing], thing)), free, strict=False))


def _distinct(chunks: Sequence[Chunk], modules: Mapping[str, Module]) -> dict[str, Module]:
    found: dict[str, Module] = {}
    for chunk in chunks:
        inside = [modules[name] for name in chunk.modules]
        # What is not understood keeps its names; whether that is safe is asked later.
        with suppress(NotUnderstood):
            inside = apart(inside, modules)
        found |= {module.name: module for module in inside}
    return found


# ---- which module goes where ----


def _chunks(modules: Mapping[str, Module], first: Sequence[Sequence[str]]) -> list[Chunk]:
    taken: set[str] = set()
    chunks = []
    for group in first:
        inside = [name for name in _in_order(modules, group) if name not in taken]
        if inside:
            chunks.append(Chunk(name=group[0], modules=tuple(inside)))
        taken |= set(inside)
    later = sorted({name for module in modules.values() for name in module.dynamic} - taken)
    reach = {root: set(_in_order(modules, [root])) - taken for root in later}
    for root in later:
        shared = set().union(*(reach[other] for other in later if other != root))
        inside = [name for name in _in_order(modules, [root]) if name in reach[root]]
        own = [name for name in inside if name == root or name not in shared]
        chunks.append(Chunk(name=root, modules=tuple(own)))
        taken |= set(own)
    left = sorted(set(modules) - taken)
    return [*chunks, *(Chunk(name=name, modules=(name,)) for name in left)]


def _in_order(modules: Mapping[str, Module], roots: Sequence[str]) -> list[str]:
    """In the order in which a browser would run them."""
    done: dict[str, None] = {}
    seen: set[str] = set()

    def visit(name: str) -> None:
        if name not in seen:
            seen.add(name)
            for need in modules[name].needs:
                visit(need)
            done[name] = None

    for root in roots:
        visit(root)
    return list(done)


def _acyclic(modules: Mapping[str, Module], where: Mapping[str, str]) -> None:
    """Within a file the browser's own order is kept; between files a circle would change it."""
    sorter: TopologicalSorter[str] = TopologicalSorter({name: set() for name in where.values()})
    for module in modules.values():
        sorter.add(where[module.name], *{where[need] for need in module.needs} - {where[module.name]})
    try:
        sorter.prepare()
    except CycleError as circle:
        raise PackingRefused(f"files would need each other: {' → '.join(circle.args[1])}") from circle


# ---- one file ----


class _Joined:
    def __init__(
        self,
        chunk: Chunk,
        modules: Mapping[str, Module],
        where: Mapping[str, str],
        known: Mapping[tuple[str, str], str],
    ) -> None:
        self._chunk = chunk
        self._known = known
        self._modules = modules
        self._where = where
        self._inside = [modules[name] for name in chunk.modules]

    def text(self, *, short_names: bool) -> str:
        self._check_places()
        from_elsewhere = self._from_elsewhere()
        self._check_names(from_elsewhere)
        bodies, short = [[*self._body(module)] for module in self._inside], dict[str, str]()
        if short_names:
            given = set(self._exports().values())
            whole = meant([list(parts(body)) for body in bodies], given)
            bodies = [[token for part in body for token in part] for body in whole]
            shortener = self._shortener(bodies, from_elsewhere)
            bodies, short = [spelt(body) for body in shortener.bodies()], shortener.top
        texts = [*self._import_lines(from_elsewhere, short)]
        texts += [squeezing.script(body) for body in bodies]
        exported = [_as(short.get(local, local), name) for name, local in sorted(self._exports().items())]
        texts += [f"export{{{','.join(exported)}}};"] if exported else []
        return "\n".join(text for text in texts if text) + "\n"

    def _shortener(
        self, bodies: list[list[Token]], from_elsewhere: Mapping[str, tuple[str, str]]
    ) -> Shortener:
        top = set(from_elsewhere).union(*(module.declared for module in self._inside))
        fixed = {local: self._known[thing] for local, thing in from_elsewhere.items() if thing in self._known}
        for module in self._inside:
            for outside, local in module.exports.items():
                if (module.name, outside) in self._known:
                    fixed[local] = self._known[module.name, outside]
        try:
            return Shortener(bodies, top, WINDOWS_OWN, fixed=fixed)
        except NotUnderstood as unclear:
            raise PackingRefused(f"{self._chunk.name}: {unclear}") from unclear

    def _check_places(self) -> None:
        folder = posixpath.dirname(self._chunk.name)
        for module in self._inside:
            if module.own_address and posixpath.dirname(module.name) != folder:
                raise PackingRefused(f"{module.name}: it asks for its own address and would move to {folder}")
            if module.waits and module is not self._inside[-1]:
                raise PackingRefused(f"{module.name}: it waits at its top, so others would wait with it")

    def _from_elsewhere(self) -> dict[str, tuple[str, str]]:
        """Names here that mean an export of another file."""
        found: dict[str, tuple[str, str]] = {}
        for module in self._inside:
            for source, outside, local in module.imports:
                if outside not in self._modules[source].exports:
                    raise PackingRefused(f"{module.name}: {source} exports no {outside}")
                if self._where[source] == self._chunk.name:
                    if self._modules[source].exports[outside] != local:
                        raise PackingRefused(f"{module.name}: {outside} of {source} must keep its name")
                elif found.setdefault(local, (source, outside)) != (source, outside):
                    raise PackingRefused(f"{module.name}: {local} means something else in this file already")
        return found

    def _check_names(self, from_elsewhere: Mapping[str, object]) -> None:
        owner: dict[str, str] = dict.fromkeys(from_elsewhere, "an import")
        for module in self._inside:
            for name in sorted(module.declared):
                if name in owner:
                    raise PackingRefused(
                        f"{module.name}: {name} is declared by {owner[name]} too; rename one"
                    )
                owner[name] = module.name

    def _import_lines(
        self, from_elsewhere: Mapping[str, tuple[str, str]], short: Mapping[str, str]
    ) -> Iterator[str]:
        others = {self._where[need] for module in self._inside for need in module.needs}
        for other in sorted(others - {self._chunk.name}):
            names = [
                _as(self._known.get((source, outside), outside), short.get(local, local))
                for local, (source, outside) in sorted(from_elsewhere.items())
                if self._where[source] == other
            ]
            yield f"import{{{','.join(names)}}}from{self._address(other)};"

    def _address(self, name: str) -> str:
        path = posixpath.relpath(name, posixpath.dirname(self._chunk.name) or ".")
        return f'"{path}"' if path.startswith("../") else f'"./{path}"'

    def _body(self, module: Module) -> Iterator[Token]:
        """The module's tokens; what it loads later is asked for where it lives now."""
        for at, token in enumerate(module.body):
            if token.kind == "string" and [one.text for one in module.body[max(at - 2, 0) : at]] == [
                "import",
                "(",
            ]:
                wanted = posixpath.join(posixpath.dirname(module.name), token.text[1:-1])
                yield replace(token, text=self._address(self._where[posixpath.normpath(wanted)]))
            else:
                yield token

    def _exports(self) -> dict[str, str]:
        asked = {
            (source, outside)
            for other in self._modules.values()
            for source, outside, _ in other.imports
            if self._where[other.name] != self._chunk.name
        }
        by_name = {self._chunk.name, *(one for other in self._modules.values() for one in other.dynamic)}
        found: dict[str, str] = {}
        for module in self._inside:
            for outside, local in module.exports.items():
                if module.name not in by_name and (module.name, outside) not in asked:
                    continue
                if found.setdefault(self._known.get((module.name, outside), outside), local) != local:
                    raise PackingRefused(f"{module.name}: {outside} would be exported twice; rename one")
        return found


def _as(name: str, other: str) -> str:
    return name if name == other else f"{name} as {other}"
