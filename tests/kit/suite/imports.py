"""Graph of which module imports or starts which, read from the sources without importing them."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

ROOMS = ("bot", "shared", "web", "worker", "tests", "migrations")
ALL_PROCESSES = ("bot", "web", "worker")
STARTS = {
    "shared.supervision.child_process": ALL_PROCESSES,
    "tests.faults.conftest": ALL_PROCESSES,
    "tests.kit.deployment.breakable_servers": ALL_PROCESSES,
    "tests.kit.deployment.telegram": ALL_PROCESSES,
    "tests.kit.telegram.bot_process": ("bot",),
}
"""Modules that start processes whose names are known only at run time, with the processes."""
LEAST_CHARS = 4
"""Shortest name of a file or folder that counts as a mention; shorter words occur everywhere."""
_DOTTED = re.compile(r"(?:bot|shared|web|worker|tests)(?:\.\w+)+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A module, and the other modules that it imports or mentions."""

    path: Path
    imports: frozenset[str]
    mentions: frozenset[str]
    """Parts of paths that occur in its strings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """All modules of a checkout by dotted name; a fixture of a conftest.py counts as a module."""

    sources: Mapping[str, Source]
    importers: Mapping[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    @classmethod
    def read(cls, root: Path) -> Graph:
        paths = {
            _name(path.relative_to(root)): path
            for room in ROOMS
            for path in sorted((root / room).rglob("*.py"))
        }
        fixtures: dict[str, set[str]] = defaultdict(set)
        sources: dict[str, Source] = {}
        for name, path in paths.items():
            tree = ast.parse(path.read_text(encoding="utf-8"))
            for fixture in list(_fixtures(tree)) if path.name == "conftest.py" else ():
                tree.body.remove(fixture)
                fixtures[fixture.name].add(f"{name}:{fixture.name}")
                sources[f"{name}:{fixture.name}"] = _source(f"{name}:{fixture.name}", path, fixture, paths)
            sources[name] = _source(name, path, tree, paths)
        graph = cls(sources=sources)
        for name, source in sources.items():
            for imported in source.imports:
                graph.importers[imported].add(name)
        graph._add_fixtures(fixtures, root)
        return graph

    def _add_fixtures(self, fixtures: Mapping[str, set[str]], root: Path) -> None:
        """Let a test depend on each conftest.py above it, and on the fixtures that it names."""
        for name, source in self.sources.items():
            if not name.startswith("tests."):
                continue
            above = {_name(folder.relative_to(root) / "conftest.py") for folder in source.path.parents
                     if folder.is_relative_to(root)}  # fmt: skip
            for conftest in above - {name}:
                self.importers[conftest].add(name)
            if name in above:
                continue  # functions of a conftest.py that are no fixtures are called by its fixtures
            for used in source.mentions & fixtures.keys():
                for fixture in fixtures[used] - {name}:
                    if fixture.partition(":")[0] in above:
                        self.importers[fixture].add(name)

    def find_touched(self, modules: Iterable[str]) -> set[str]:
        """Return the modules, and all that import them, directly or through others."""
        touched: set[str] = set()
        waiting = list(modules)
        while waiting:
            if (name := waiting.pop()) not in touched:
                touched.add(name)
                waiting += self.importers.get(name, ())
        return touched

    def find_modules(self, file: Path, root: Path) -> set[str]:
        """Return the modules that a changed file stands for: itself, or those that mention it."""
        names = {name for name, source in self.sources.items() if source.path == root / file}
        if names and file.parts[0] != "migrations":
            return names
        words = {part for part in file.parts if len(part) >= LEAST_CHARS and part not in ROOMS[:-1]}
        for_all = {"tests.conftest", *self.sources["tests.conftest"].imports}
        return names | {
            name for name, source in self.sources.items() if source.mentions & words and name not in for_all
        }


def _name(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def _fixtures(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the fixtures that a test has to name; a fixture with `autouse` belongs to its conftest.py."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            marks = " ".join(ast.unparse(mark) for mark in node.decorator_list)
            if "fixture" in marks and "autouse" not in marks and "name=" not in marks:
                yield node


def _source(name: str, path: Path, tree: ast.AST, modules: Mapping[str, Path]) -> Source:
    imports, mentions = _listed_modules(tree, modules), set[str]()
    for node in _walk_what_runs(tree):
        if isinstance(node, ast.Import):
            imports |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = _resolve(name, path, node)
            imports |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.arg):
            mentions.add(node.arg)
        elif isinstance(node, ast.List | ast.Tuple):
            imports |= set(_started(node))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if not re.search(r"\s", node.value):
                mentions |= set(re.split(r"[/\\,]", node.value))
            # a module that a conftest.py only mentions is no dependency of all tests
            if path.name != "conftest.py" or ":" in name:
                imports |= set(_DOTTED.findall(node.value))
    imports |= {f"{room}.__main__" for room in STARTS.get(name, ())}
    known = {found for each in imports for found in _prefixes(each) if found in modules}
    return Source(
        path=path, imports=frozenset(known - {name.partition(":")[0]}), mentions=frozenset(mentions)
    )


def _walk_what_runs(tree: ast.AST) -> Iterator[ast.AST]:
    """Walk over a tree without the imports under TYPE_CHECKING."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            waiting += node.orelse
            continue
        yield node
        waiting += ast.iter_child_nodes(node)


def _resolve(name: str, path: Path, node: ast.ImportFrom) -> str:
    name = name.partition(":")[0]
    if not node.level:
        return node.module or ""
    parts = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    kept = parts[: len(parts) - (node.level - 1)]
    return ".".join([*kept, *filter(None, [node.module])])


def _listed_modules(tree: ast.AST, modules: Mapping[str, Path]) -> set[str]:
    """Return the modules of each package that is listed by `iter_modules(package.__path__)`."""
    packages = {
        alias.asname or alias.name: alias.name
        for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    }  # fmt: skip
    listed = {
        packages.get(ast.unparse(node.args[0]).removesuffix(".__path__"))
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("iter_modules") and node.args
    }
    return {name for name in modules if name.rpartition(".")[0] in listed}


def _started(words: ast.List | ast.Tuple) -> Iterator[str]:
    """Yield the modules that a command of the form python -m MODULE starts."""
    told = [word.value if isinstance(word, ast.Constant) else None for word in words.elts]
    for option, module in pairwise(told):
        if option == "-m" and isinstance(module, str):
            yield f"{module}.__main__"


def _prefixes(name: str) -> Iterator[str]:
    """Yield a module and its packages, whose `__init__` runs first."""
    parts = name.split(".")
    for length in range(1, len(parts) + 1):
        yield ".".join(parts[:length])
