"""The floors and rooms of the house, kept by reading every import.

When a rule is in your way, change it here, with a reason, in the commit that needs it.
"""

from __future__ import annotations

import ast
import builtins
import graphlib
import re
import sys
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TOPS = ("bot", "shared", "web", "worker")

# Whoever stands on a floor may import what stands on a lower one, and its own room.
# The first prefix that fits decides, so exceptions stand before the rule.
FLOORS: tuple[tuple[str, int, str], ...] = (
    ("shared.locales", 0, "the program's words, which every room may say"),
    ("shared.samples", 0, "what the demo plays, and answers by"),
    ("shared.core", 1, "pure decisions: they need nobody but the words"),
    ("shared.ports", 2, "what the story needs, in the words of the core"),
    ("shared.config", 2, "what an operator can set"),
    ("shared.work_marks", 2, "what a process is busy with, for its watch-dog to read"),
    ("shared.runtime", 2, "tasks, traces and crash points that services and adapters share"),
    ("shared.services", 3, "the story"),
    ("shared.adapters", 3, "the outside world"),
    ("shared.supervision", 4, "processes as children: liveness, secrets, hand-off, backups"),
    ("shared.bootstrap", 5, "the only place where parts are put together"),
    ("shared.cli", 6, "one module per verb of the command line"),
    ("shared.diagnostics", 7, "the doctor and the security review"),
    ("shared.__main__", 8, "the command line calls all of these"),
    ("bot", 6, "a process"),
    ("web", 6, "a process"),
    ("worker", 6, "a process"),
    ("shared", 0, "the package itself is empty"),
)

MODULES_IN_A_FOLDER = 20
"""Whoever looks for something reads the names of one folder; `__init__` is not counted."""

# Neighbours on one floor that must not know each other.
STRANGERS: tuple[tuple[str, str, str], ...] = (
    ("shared.services", "shared.adapters", "they meet in bootstrap; that is what the ports are for"),
    ("shared.adapters", "shared.services", "they meet in bootstrap; that is what the ports are for"),
    ("bot", "web", "channels share the session service, not each other"),
    ("web", "bot", "channels share the session service, not each other"),
    ("bot", "worker", "what both need belongs to shared"),
    ("web", "worker", "what both need belongs to shared"),
    ("worker", "bot", "the worker cannot reach a person: flushes are silent by construction"),
    ("worker", "web", "the worker cannot reach a person: flushes are silent by construction"),
    ("worker", "aiogram", "the worker cannot reach a person: flushes are silent by construction"),
    ("worker", "aiohttp.web", "the worker cannot reach a person: flushes are silent by construction"),
    ("shared", "bot", "nothing shared calls a channel"),
    ("shared", "web", "nothing shared calls a channel"),
    ("shared", "worker", "processes are started by name, not imported"),
)

# Which room a package lives in; everybody else asks that room. Absent here means: anyone above the core.
HOMES: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("aiogram", ("bot",), "half a second and 30 MB; only a process with a bot token pays"),
    ("alembic", ("shared.adapters.postgres", "migrations"), "migrations are the database's business"),
    ("anthropic", ("shared.adapters",), "one client, behind the ChatModel port"),
    ("argon2", ("shared.adapters.postgres", "web"), "passwords of operators"),
    ("arq", ("shared.adapters", "worker"), "behind one module, so that it can be replaced"),
    (
        "asyncpg",
        ("shared.adapters", "shared.bootstrap", "shared.cli.startup.steps"),
        "SQL belongs to the adapters; bootstrap opens the pool, start-up and doctor tell what a server says",
    ),
    (
        "babel",
        ("shared.locales", "shared.adapters.files.letter_statistics"),
        "plurals and numbers of every language, and its names, by whose letters encodings are known",
    ),
    ("cryptography", ("shared.adapters.encryption",), "what is sealed is sealed in one place"),
    (
        "dotenv",
        ("shared.config.settings", "shared.diagnostics.local_checks", "shared.cli.setup"),
        "reading and writing .env",
    ),
    (
        "jwt",
        ("web.auth.site_tokens", "shared.adapters.oidc", "shared.adapters.alerts.web_push"),
        "what others sign about people, and who we are to push services",
    ),
    (
        "markdown_it",
        ("bot.telegram.markup",),
        "models write Markdown; only Telegram wants it as entities, browsers build their own nodes",
    ),
    ("prometheus_client", ("shared", "web", "worker", "bot"), "metrics"),
    (
        "pydantic",
        (
            "shared.config.settings",
            "shared.config.fields",
            "shared.config.agents",
            "shared.config.sites",
            "shared.config.bots",
            "shared.bootstrap.logs",
            "shared.cli.setup",
            "shared.adapters",
            "web",
            "bot.aiogram_loader",
        ),
        "checks at the doors only; aiogram is built on it",
    ),
    (
        "pydantic_settings",
        ("shared.config.settings", "shared.config.fields"),
        "settings are read in one place",
    ),
    (
        "redis",
        ("shared.adapters", "shared.diagnostics.security_review"),
        "the doorbell, behind ports",
    ),
    ("segno", ("web.dashboard.sign_in.second_factor",), "one picture on one page"),
    (
        "sqlalchemy",
        ("shared.adapters.postgres", "shared.cli.startup.steps"),
        "SQL belongs to the adapter; start-up tells a person what a server says",
    ),
    ("sqlmodel", ("shared.adapters.postgres",), "tables are declared in one place"),
    ("tiktoken", ("shared.adapters",), "behind the TokenCounter port"),
    ("watchfiles", ("shared.adapters.files.workspace_files",), "only where an agent has a folder"),
    ("webpush", ("shared.adapters.alerts.web_push",), "what browsers are notified of"),
    ("uvloop", ("shared.bootstrap.process",), "one place chooses the loop of our processes"),
)

# Imported inside functions only: a start without them is faster and smaller.
LATE = {
    "aiogram": "half a second and 30 MB by `bot.aiogram_loader`, 120 MB without it",
    "watchfiles": "4 MB, and most installations have no folder to watch",
    "anthropic": "0.8 s and 82 MB at import",
    "jsonschema": "4 MB that a process pays for when a tool is called",
    "babel": "0.2 s and 6 MB; only who counts something in words pays",
    "cryptography": "20 ms and 6 MB; only who has signed-in people pays",
    "jwt": "it brings cryptography along",
    "justhtml": "23 MB, in a process of its own",
    "mcp": "0.8 s and 40 MB at import; only who has configured a server pays",
    "segno": "only who sets up a second factor pays",
    "simpleeval": "only who calculates pays",
    "webpush": "it brings cryptography along",
}

CORE_MAY_NOT_USE = {
    "asyncio": "the core does not wait",
    "datetime.datetime.now": "the core has no clock",
    "logging": "the core answers, it does not report",
    "os": "the core has no outside",
    "pathlib": "the core has no outside",
    "random": "same input, same output",
    "secrets": "same input, same output",
    "socket": "the core has no outside",
    "subprocess": "the core has no outside",
    "threading": "the core does not wait",
    "time": "the core has no clock",
    "uuid": "same input, same output",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    importer: str
    imported: str
    line: int
    late: bool
    for_types: bool

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.imported}"


def _module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> dict[str, Path]:
    files = (path for top in TOPS for path in (ROOT / top).rglob("*.py"))
    return {_module_name(path): path for path in sorted(files)}


@cache
def imports() -> tuple[Import, ...]:
    return tuple(found for name, path in modules().items() for found in _imports_of(name, path))


def _imports_of(name: str, path: Path) -> Iterator[Import]:
    yield from _walk(name, ast.parse(path.read_text(), str(path)), late=False, for_types=False)


def _walk(name: str, node: ast.AST, *, late: bool, for_types: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        inside = late or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        typing = for_types or (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test))
        for imported in _names(name, child):
            yield Import(
                importer=name,
                imported=imported,
                line=getattr(child, "lineno", 0),
                late=inside,
                for_types=typing,
            )
        yield from _walk(name, child, late=inside, for_types=typing)


def _names(importer: str, node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"{importer}:{node.lineno} uses a relative import; write the whole name"
        for alias in node.names:
            whole = f"{node.module}.{alias.name}"
            yield whole if whole in modules() or whole == "aiohttp.web" else str(node.module)


def _is_in(name: str, room: str) -> bool:
    return name == room or name.startswith(f"{room}.")


def _floor(module: str) -> int | None:
    return next((floor for room, floor, _ in FLOORS if _is_in(module, room)), None)


def _complain(found: list[str]) -> None:
    assert not found, "\n".join(["", *found, "", "The rules and their reasons are in this test's tables."])


def test_imports_only_go_down() -> None:
    """Neighbours on one floor are judged by the table of strangers, which knows the reasons."""
    found = []
    for each in imports():
        above, below = _floor(each.importer), _floor(each.imported)
        if above is not None and below is not None and below > above:
            found.append(f"{each}: floor {above} does not know floor {below}")
    _complain(found)


def test_strangers_stay_strangers() -> None:
    _complain(
        [
            f"{each}: {reason}"
            for each in imports()
            for importer, imported, reason in STRANGERS
            if _is_in(each.importer, importer) and _is_in(each.imported, imported)
        ]
    )


def test_only_the_command_line_knows_the_tests() -> None:
    """A container image has no folder `tests`; the command line says so where a verb needs it."""
    _complain(
        [
            f"{each}: an installation may have no tests"
            for each in imports()
            if _is_in(each.imported, "tests") and not (each.importer == "shared.__main__" and each.late)
        ]
    )


def test_every_package_stays_in_its_room() -> None:
    _complain(
        [
            f"{each}: {package} lives in {', '.join(rooms)} ({reason})"
            for each in imports()
            for package, rooms, reason in HOMES
            if _is_in(each.imported, package)
            and not each.for_types
            and not any(_is_in(each.importer, room) for room in rooms)
        ]
    )


@pytest.mark.parametrize("package", sorted(LATE))
def test_heavy_packages_are_imported_late(package: str) -> None:
    _complain(
        [
            f"{each} at the top: {LATE[package]}; import it inside the function that needs it"
            for each in imports()
            if _is_in(each.imported, package)
            and not each.late
            and not each.for_types
            and not _is_in(each.importer, "bot.telegram")
        ]
    )


def test_the_core_is_pure() -> None:
    found = []
    for each in imports():
        if not _is_in(each.importer, "shared.core") or _is_in(each.imported, "shared.core"):
            continue
        if _is_in(each.imported, "shared.locales"):
            continue  # constants that stand in files of their own, since translators write them
        top = each.imported.split(".")[0]
        if top in CORE_MAY_NOT_USE:
            found.append(f"{each}: {CORE_MAY_NOT_USE[top]}")
        elif top not in sys.stdlib_module_names:
            found.append(f"{each}: the core needs nothing but Python")
    for name, path in modules().items():
        if _is_in(name, "shared.core"):
            found += [f"{name}:{line} is async: the core does not wait" for line in _async_lines(path)]
    _complain(found)


def _async_lines(path: Path) -> list[int]:
    kinds = (ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await)
    return [node.lineno for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds)]


def _find_circle(graph: Mapping[str, set[str]]) -> str:
    """Return one circle of a graph as a chain of names; empty if there is none."""
    try:
        tuple(graphlib.TopologicalSorter(graph).static_order())
    except graphlib.CycleError as error:
        return " -> ".join(error.args[1])
    return ""


def test_modules_have_no_circle_of_imports() -> None:
    """Imports for types are counted: a reader of one module follows them as well."""
    assert _find_circle(_module_graph(imports(), modules())) == ""


def _module_graph(found: Iterable[Import], known: Container[str]) -> dict[str, set[str]]:
    """Modules with the modules that each imports, for types or at run time."""
    graph: dict[str, set[str]] = {}
    for each in found:
        if each.imported in known and each.imported != each.importer:
            graph.setdefault(each.importer, set()).add(each.imported)
    return graph


def test_every_module_begins_by_saying_what_it_is_for() -> None:
    found = []
    for name, path in modules().items():
        tree = ast.parse(path.read_text())
        future = any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body)
        if not ast.get_docstring(tree):
            found.append(f"{name} has no sentence at its beginning")
        elif not future and len(tree.body) > 1:
            found.append(f"{name} lacks `from __future__ import annotations`")
    _complain(found)


def _package(module: str) -> str:
    return module if modules()[module].name == "__init__.py" else module.rpartition(".")[0]


def test_rooms_side_by_side_have_no_circle() -> None:
    """A module that lies beside rooms is a room; imports for types are counted."""
    graphs = _room_graphs(imports(), modules())
    _complain([f"in {parent}: {circle}" for parent in graphs if (circle := _find_circle(graphs[parent]))])


def _room_graphs(found: Iterable[Import], known: Container[str]) -> dict[str, dict[str, set[str]]]:
    """Rooms of each package with the rooms beside them that each imports."""
    graphs: dict[str, dict[str, set[str]]] = {}
    for each in found:
        if each.imported not in known:
            continue
        here, there = each.importer.split("."), each.imported.split(".")
        common = next(
            (n for n, pair in enumerate(zip(here, there, strict=False)) if pair[0] != pair[1]), None
        )
        if common:
            graph = graphs.setdefault(".".join(here[:common]), {})
            graph.setdefault(here[common], set()).add(there[common])
    return graphs


def test_circle_is_found_when_one_import_is_for_types() -> None:
    found = [
        Import(importer="web.ports", imported="web.api.uploads", line=1, late=False, for_types=True),
        Import(importer="web.api.uploads", imported="web.ports", line=1, late=False, for_types=False),
    ]
    known = {"web.ports", "web.api.uploads"}
    assert _find_circle(_module_graph(found, known))
    assert _find_circle(_room_graphs(found, known)["web"])
    assert not _find_circle(_module_graph(found[1:], known))
    assert not _find_circle(_room_graphs(found[1:], known)["web"])


_SCRIPT_IMPORT = re.compile(
    r"^(?:import|export)\b[^;'\"(]*['\"](\.{1,2}/[^'\"]+\.js)['\"]|\bimport\(['\"](\.{1,2}/[^'\"]+\.js)['\"]\)",
    re.MULTILINE,
)
_SCRIPT_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)


def _script_graph(folder: Path) -> dict[str, set[str]]:
    """Scripts of a folder with those that each imports, at once or later; comments are not counted."""
    graph: dict[str, set[str]] = {}
    for path in sorted(folder.rglob("*.js")):
        if path.is_relative_to(folder / "dist"):
            continue
        code = _SCRIPT_COMMENT.sub("", path.read_text())
        needed = (match[1] or match[2] for match in _SCRIPT_IMPORT.finditer(code))
        graph[str(path)] = {str((path.parent / name).resolve()) for name in needed}
    return graph


def test_scripts_of_pages_have_no_circle_of_imports() -> None:
    assert _find_circle(_script_graph(ROOT / "web" / "static")) == ""


def test_circle_of_scripts_is_found(tmp_path: Path) -> None:
    (tmp_path / "sheet.js").write_text('import { notes } from "./notes.js";\nexport const t = 1;\n')
    (tmp_path / "notes.js").write_text('import { h } from "./h.js";\nexport { t } from "./sheet.js";\n')
    assert "sheet.js" in _find_circle(_script_graph(tmp_path))
    (tmp_path / "notes.js").write_text('export const look = () => import("./sheet.js");\n')
    assert "sheet.js" in _find_circle(_script_graph(tmp_path))
    (tmp_path / "notes.js").write_text('/** @typedef {import("./sheet.js").Sheet} Sheet */\n')
    assert _find_circle(_script_graph(tmp_path)) == ""


def test_a_folder_can_be_read_at_a_glance() -> None:
    folders = Counter(_package(name) for name, path in modules().items() if path.name != "__init__.py")
    _complain(
        [
            f"{package} has {number} modules, {MODULES_IN_A_FOLDER} at most: give a subject a room of its own"
            for package, number in sorted(folders.items())
            if number > MODULES_IN_A_FOLDER
        ]
    )


def test_no_class_name_stands_twice() -> None:
    """Whoever reads a name knows what it is."""
    places: dict[str, list[str]] = {}
    for name, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(f"{name}:{node.lineno}")
    _complain([f"{name} is at {', '.join(found)}" for name, found in places.items() if len(found) > 1])


_DONE = re.compile(
    r"(?:told|shown|heard|kept|said|seen|found|known|held|begun|taken|given|brought|sent|written|done|gone|left"
    r"|(?!need|feed|seed|embed)[a-z]+ed)(?:_(?:by|of|to|in|on|from|up|at|since|until|through|the)\b.*)?"
    r"|(?:where|which|what|who|whom|whose)_.*"
)


def _public_functions(made: ast.Module | ast.ClassDef) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Those of a module and of its classes; what reads like an attribute may be called like one."""
    for node in made.body:
        if isinstance(node, ast.ClassDef):
            yield from _public_functions(node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            marks = {mark.id for mark in node.decorator_list if isinstance(mark, ast.Name)}
            if not marks & {"property", "cached_property"}:
                yield node


def test_a_function_is_called_by_what_it_does() -> None:
    """Begin with a verb: `mark_sent` says more than `told`, `find_sessions` more than `where_they_lead`."""
    _complain([
        f"{name}:{node.lineno} {node.name}"
        for name, path in modules().items()
        for node in _public_functions(ast.parse(path.read_text()))
        if _DONE.fullmatch(node.name)
    ])  # fmt: skip


_RAISES = re.compile(r"\b[Rr]aises ([^.;\"]*)")
_LISTED = re.compile(r"(?:`?[A-Z]\w+`?(?:,? and |,? or |, )?)+")
_ERROR = re.compile(r"\b[A-Z][a-z]+(?:[A-Z][a-z]+)+\b")


def test_every_error_that_a_docstring_names_exists() -> None:
    """Errors are part of the interface: who reads of one can catch it."""
    texts = {name: path.read_text() for name, path in modules().items()}
    known = {name for text in texts.values() for name in re.findall(r"^ *class (\w+)", text, re.MULTILINE)}
    known |= set(vars(builtins))
    _complain([
        f"{module}: {name}"
        for module, text in texts.items()
        for names in _RAISES.findall(text)
        for listed in [_LISTED.match(names)]
        for name in {*_ERROR.findall(names), *re.findall(r"[A-Z]\w+", listed[0] if listed else "")}
        if name not in known and name.removesuffix("s") not in known
    ])  # fmt: skip


def test_every_error_has_a_sentence_for_people_beside_its_docstring() -> None:
    """Who rewrites a docstring for engineers must not change what a person reads."""
    classes = {
        node.name: (name, node)
        for name, path in modules().items()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    }

    def is_error(name: str) -> bool:
        if name == "EvertalkError":
            return True
        return name in classes and any(
            is_error(ast.unparse(base).split(".")[-1]) for base in classes[name][1].bases
        )

    errors = [found for name, found in classes.items() if is_error(name)]
    assert len(errors) > 100
    _complain([
        f"{module}:{node.lineno} {node.name}"
        for module, node in errors
        if not any(
            re.fullmatch(r"sentence = (['\"])[A-Z].+[.]\1", ast.unparse(one)) for one in node.body
        )
    ])  # fmt: skip


def test_every_page_that_the_code_names_exists() -> None:
    """Who reads of one can open it."""
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} | {"answer.md"}
    _complain([
        f"{module}: {name}"
        for module, path in modules().items()
        for name in re.findall(r"\b[a-z]+\.md\b", path.read_text())
        if name not in pages
    ])  # fmt: skip


def test_the_story_of_a_room_names_what_is_there() -> None:
    """A name in it is a module of the room, something in one, or a module elsewhere by its whole name."""
    known = modules()
    wrong = []
    for room, path in known.items():
        if path.name != "__init__.py":
            continue
        text = path.read_text()
        for name in re.findall(r"`([a-z_]+(?:\.\w+)*)`", ast.get_docstring(ast.parse(text)) or ""):
            module, _, inner = name.partition(".")
            beside = known.get(f"{room}.{module}")
            held = beside.read_text() if beside else text
            last = inner.rpartition(".")[2] or ("" if beside else f"def {module}")
            if name not in known and last not in held:
                wrong.append(f"{room}: {name}")
    _complain(wrong)


def test_every_module_has_a_floor() -> None:
    _complain([f"{name} is on no floor" for name in modules() if _floor(name) is None])


OPENERS: dict[tuple[str, str], dict[str, str]] = {
    ("asyncpg", "connect"): {
        "shared.adapters.postgres.db.connecting": "reads every address alike: TLS, several hosts, poolers",
        "shared.adapters.embedded.postgres": "makes the database of a server that it has just started",
    },
    ("Redis", "from_url"): {},
    ("ArqRedis", "from_url"): {},
}
"""Calls that open a connection to a server, and who may make them; Redis' clients come from `open_redis`."""


def test_connections_are_opened_in_one_place() -> None:
    wrong = []
    for name, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                permitted = OPENERS.get((node.value.id, node.attr))
                if permitted is not None and name not in permitted:
                    wrong.append(f"{name}:{node.lineno} opens a connection by itself")
    _complain(wrong)


MAY_CONSTRUCT_STORES = {
    "shared.adapters.postgres": "stores that are made of others",
    "shared.adapters.telemetry.heartbeat": "beats in a thread of its own, over a pool of its own",
    "shared.bootstrap": "the one place",
}


def _stores() -> frozenset[str]:
    """Classes of the database whose constructor takes a pool."""
    found = set()
    for name, path in modules().items():
        if _is_in(name, "shared.adapters.postgres"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef) and _takes_pool(node):
                    found.add(node.name)
    return frozenset(found)


def _takes_pool(made: ast.ClassDef) -> bool:
    if any(isinstance(base, ast.Name) and base.id in ("PoolStore", "AdminStore") for base in made.bases):
        return True
    return any(
        isinstance(node, ast.FunctionDef)
        and node.name == "__init__"
        and "pool" in [argument.arg for argument in node.args.args]
        for node in made.body
    )


def test_stores_are_constructed_in_bootstrap_only() -> None:
    known = _stores()
    assert len(known) > 40, "the rule has lost what it is about"
    _complain(
        [
            f"{name}:{node.lineno} makes {node.func.id}: take it from `shared.bootstrap.stores`"
            for name, path in modules().items()
            if not any(_is_in(name, room) for room in MAY_CONSTRUCT_STORES)
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in known
        ]
    )


WEB_ROOTS = ("web.app", "web.dashboard.routes")
"""Modules that take services out of a bag, to construct handlers with them."""
BAGS = ("shared.bootstrap.app", "shared.bootstrap.stores", "shared.bootstrap.dashboard_stores")
MOST_SERVICES = 12
"""Fields of a class of handlers; with more of them the subject is two subjects."""


def test_handlers_take_no_bag_of_services() -> None:
    """A reader of a handler sees in its class what it needs, and a root gives exactly that."""
    _complain(
        [
            f"{each}: construct the handlers with what they need, in {' or '.join(WEB_ROOTS)}"
            for each in imports()
            if _is_in(each.importer, "web") and each.importer not in (*WEB_ROOTS, "web.__main__")
            if each.imported in (*BAGS, *WEB_ROOTS[:1])
        ]
    )


def _crowded_handlers(source: str) -> Iterator[str]:
    """Yield the classes with registered methods, or `Handlers` as name, that have too many fields."""
    for made in ast.walk(ast.parse(source)):
        if isinstance(made, ast.ClassDef) and (made.name.endswith("Handlers") or _registers(made)):
            fields = [node for node in made.body if isinstance(node, ast.AnnAssign)]
            if len(fields) > MOST_SERVICES:
                yield f"{made.name} has {len(fields)} services"


def _registers(made: ast.ClassDef) -> bool:
    return any(
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _is_registered(node)
        for node in made.body
    )


def _is_registered(made: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(
        isinstance(mark, ast.Call)
        and isinstance(mark.func, ast.Attribute)
        and mark.func.attr in ("on", "page")
        for mark in made.decorator_list
    )


def test_handlers_have_a_dozen_services_at_most() -> None:
    _complain(
        [
            f"{name}: {found}"
            for name, path in modules().items()
            if _is_in(name, "web")
            for found in _crowded_handlers(path.read_text())
        ]
    )


def test_crowded_handlers_are_found() -> None:
    fields = "".join(f"    service_{number}: int\n" for number in range(MOST_SERVICES + 1))
    method = '    @router.on("GET /jobs")\n    def list(self): ...\n'

    assert list(_crowded_handlers(f"class Jobs:\n{fields}{method}")) == ["Jobs has 13 services"]
    assert list(_crowded_handlers(f"class Jobs:\n{fields}")) == []


def _handlers_with_dicts(source: str) -> Iterator[str]:
    """Yield the registered handlers that return a dict which they write themselves."""
    for made in ast.walk(ast.parse(source)):
        if not isinstance(made, ast.FunctionDef | ast.AsyncFunctionDef) or not _is_registered(made):
            continue
        written = {name for name, value in _assigned(made) if _is_dict(value, set())}
        if any(_is_dict(value, written) for value in _returned(made)):
            yield made.name


def _assigned(made: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Yield the local names of a function, each with a value that it is given."""
    for node in ast.walk(made):
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            targets, value = [node.target], node.value
        else:
            continue
        yield from ((target.id, value) for target in targets if isinstance(target, ast.Name))


def _is_dict(value: ast.expr, written: set[str]) -> bool:
    """Return whether a value is a dict literal, a union with one, or the name of one."""
    if isinstance(value, ast.BinOp):
        return _is_dict(value.left, written) or _is_dict(value.right, written)
    return isinstance(value, ast.Dict | ast.DictComp) or (isinstance(value, ast.Name) and value.id in written)


def _returned(node: ast.AST) -> Iterator[ast.expr]:
    """Yield what a function returns, both sides of a condition, without the functions inside it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if isinstance(child, ast.Return) and child.value is not None:
            value = child.value
            yield from (value.body, value.orelse) if isinstance(value, ast.IfExp) else (value,)
        yield from _returned(child)


def test_handlers_return_no_dict_literal() -> None:
    """A typed answer has its shape in one place: JSON and schema come from its class."""
    _complain(
        [
            f"{name}.{handler} returns a dict: return a dataclass, from which its schema comes"
            for name, path in modules().items()
            if _is_in(name, "web")
            for handler in _handlers_with_dicts(path.read_text())
        ]
    )


@pytest.mark.parametrize(
    "body",
    [
        'return {"jobs": []}',
        'return None if call else {"jobs": []}',
        'return page | {"jobs": []}',
        'page: Page = {"jobs": []}\n    return page',
    ],
)
def test_handler_with_a_dict_is_found(body: str) -> None:
    assert list(_handlers_with_dicts(_handler(body))) == ["list_jobs"]


def test_handler_with_a_typed_answer_is_accepted() -> None:
    assert list(_handlers_with_dicts(_handler('more = {"jobs": []}\n    return Jobs(**more)'))) == []


def _handler(body: str) -> str:
    return f'@router.on("GET /jobs")\nasync def list_jobs(call):\n    {body}\n'


ENGINE = ("shared.adapters.postgres.turns", "shared.services.turns", "shared.core.session")
CHANNEL_TRAITS = "shared.core.session.channels"


def test_engine_of_turns_knows_no_channel() -> None:
    """A channel hands in what it stores with a message, and is asked for its traits."""
    _complain(
        [
            f"{name}:{number} knows a channel: hand it in with a receipt, or ask {CHANNEL_TRAITS}"
            for name, path in modules().items()
            if name != CHANNEL_TRAITS and any(_is_in(name, room) for room in ENGINE)
            for number, line in enumerate(path.read_text().splitlines(), 1)
            if "telegram" in line.lower()
        ]
    )


def test_statements_number_no_parameters() -> None:
    """`Named` gives the numbers, so that nobody counts them."""
    _complain(
        [
            f"{name}:{number} counts a parameter: name it, with `Named`"
            for name, path in modules().items()
            if not _is_in(name, "shared.adapters.postgres.db")
            for number, line in enumerate(path.read_text().splitlines(), 1)
            if re.search(r"\$\d", line)
        ]
    )


LONG_STATEMENT = 8
"""Lines from which a statement says what it guarantees; a shorter one has its name and its method."""


def _silent_statements(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and name of each long statement that is followed by no docstring."""
    body = ast.parse(source).body
    for node, after in zip(body, [*body[1:], None], strict=True):
        if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)):
            continue
        made = node.value.func
        is_said = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        is_long = (node.end_lineno or 0) - node.lineno >= LONG_STATEMENT
        if isinstance(made, ast.Name) and made.id == "Named" and is_long and not is_said:
            yield node.lineno, ast.unparse(node.targets[0])


def test_long_statements_say_what_they_guarantee() -> None:
    _complain(
        [
            f"{name}:{line} {statement}: say below it what it guarantees"
            for name, path in modules().items()
            for line, statement in _silent_statements(path.read_text())
        ]
    )


def test_silent_statement_is_found() -> None:
    statement = 'X = Named("""' + "\n" * LONG_STATEMENT + '""")\n'

    assert list(_silent_statements(statement)) == [(1, "X")]
    assert list(_silent_statements(f'{statement}"""Rows."""')) == []


COMPOSED = {"db": 4, "operations": 11}
"""Statements of each room of the stores that exist only after Python has put them together; may only fall.

A statement is one text: constants are arguments of `Named`, and what statements share is a view or a function
of the database. What depends on a query of the dashboard is assembled of whole conditions with `Arguments`.
"""
_SQL = re.compile(
    r"\b(SELECT|INSERT INTO|UPDATE|DELETE FROM|WITH|FROM|WHERE|RETURNING|ON CONFLICT|EXISTS|JOIN)\b"
)


def _count_composed(source: str) -> int:
    """Return the number of f-strings that hold SQL, without those inside of others."""
    found = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.JoinedStr)]
    inner = {id(part) for node in found for part in ast.walk(node) if part is not node}
    texts = (
        "".join(str(part.value) for part in node.values if isinstance(part, ast.Constant))
        for node in found
        if id(node) not in inner
    )
    return sum(bool(_SQL.search(text)) for text in texts)


def test_statements_are_texts() -> None:
    counted: Counter[str] = Counter()
    for name, path in modules().items():
        if _is_in(name, "shared.adapters.postgres") and name.count(".") > 3:
            counted[name.split(".")[3]] += _count_composed(path.read_text())
    more = {room: number for room, number in counted.items() if number > COMPOSED.get(room, 0)}
    assert more == {}, "write statements out, or give what they share a name in the database"


def test_composed_statement_is_found() -> None:
    assert _count_composed('X = f"SELECT {columns} FROM turns"\nY = f"{name} of {room}"') == 1
    assert _count_composed('X = "SELECT 1 FROM turns"') == 0


def test_stores_take_their_pool_from_pool_store() -> None:
    _complain(
        [
            f"{name}:{node.lineno} {node.name} keeps a pool by itself"
            for name, path in modules().items()
            if _is_in(name, "shared.adapters.postgres") and not _is_in(name, "shared.adapters.postgres.db")
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.ClassDef) and not node.bases and _sets_pool(node)
        ]
    )


def _sets_pool(made: ast.ClassDef) -> bool:
    return any(
        isinstance(node, ast.Attribute) and node.attr == "_pool" and isinstance(node.ctx, ast.Store)
        for node in ast.walk(made)
    )


def test_each_migration_follows_the_one_before() -> None:
    """Two that were written side by side would leave no database that can be migrated."""
    texts = {path.name[:4]: path.read_text() for path in sorted((ROOT / "migrations/versions").glob("*.py"))}
    told = [re.findall(r'^(?:down_)?revision = "?(\w+)"?$', text, re.MULTILINE) for text in texts.values()]
    assert told == [list(pair) for pair in zip(texts, ("None", *texts), strict=False)]
    assert len(texts) == len(list((ROOT / "migrations/versions").glob("*.py")))


def test_test_modules_are_imported_by_no_module() -> None:
    """Helpers of several test modules stand in a module of their own, in the nearest folder or in the kit."""
    _complain(
        [
            f"{path.relative_to(ROOT)}:{node.lineno} imports {found}"
            for path in sorted((ROOT / "tests").rglob("*.py"))
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Import | ast.ImportFrom)
            for found in _imported_names(node)
            if any(part.startswith("test_") for part in found.split("."))
        ]
    )


OVERRIDDEN_FIXTURES = {
    "app_options", "app_tools", "bot_options", "context_options", "house_browser", "house_options",
    "model_options", "people_parts", "place_options", "pool_size", "rows_by_hand", "seeded",
    "sends_alerts", "serving_options", "tolerated", "wire",
}  # fmt: skip
"""Small values, and rows, that a module overrides for a fixture of a conftest, such as `app`."""


def test_a_fixture_name_has_one_definition() -> None:
    """What differs by a value is one fixture with an overridden option; another thing has another name."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for name, line in _defined_fixtures(ast.parse(path.read_text())):
            if name not in OVERRIDDEN_FIXTURES:
                found.setdefault(name, []).append(f"{path.relative_to(ROOT)}:{line} defines {name} again")
    repeated = [place for places in found.values() for place in places[1:]]
    assert not repeated, "\n".join(repeated)


def test_repeated_fixture_is_found() -> None:
    code = "@pytest.fixture\nasync def a(): ...\n@pytest.fixture(name='b')\ndef c(): ...\ndef d(): ..."
    assert list(_defined_fixtures(ast.parse(code))) == [("a", 2), ("b", 4)]


def _defined_fixtures(module: ast.Module) -> Iterator[tuple[str, int]]:
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for decorator in node.decorator_list:
                made, given = (
                    (decorator.func, decorator.keywords)
                    if isinstance(decorator, ast.Call)
                    else (decorator, [])
                )
                if ast.unparse(made) == "pytest.fixture":
                    names = [ast.literal_eval(keyword.value) for keyword in given if keyword.arg == "name"]
                    yield (names[0] if names else node.name), node.lineno


def _imported_names(node: ast.Import | ast.ImportFrom) -> list[str]:
    """Return what a module imports from the tests; the functions of a test module count, too."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    else:
        base = f"tests.{node.module or ''}" if node.level else node.module or ""
        names = [f"{base}.{alias.name}" for alias in node.names]
    return [name for name in names if name.startswith("tests.")]
