"""The floors and rooms of the house, kept by reading every import.

When a rule is in your way, change it here, with a reason, in the commit that needs it.
"""

from __future__ import annotations

import ast
import graphlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TOPS = ("bot", "shared", "web", "worker")

# Whoever stands on a floor may import what stands on a lower one, and its own room.
# The first prefix that fits decides, so exceptions stand before the rule.
FLOORS: tuple[tuple[str, int, str], ...] = (
    ("shared.core", 1, "pure decisions: they need nobody"),
    ("shared.ports", 2, "what the story needs, in the words of the core"),
    ("shared.settings", 2, "what an operator can set"),
    ("shared.given", 3, "what each process is given of it"),
    ("shared.bots", 2, "which Telegram bots an operator has set up"),
    ("shared.agents", 2, "what an operator may write into an agent's row"),
    ("shared.sites", 2, "what an operator may write into a site's row"),
    ("shared.logs", 2, "how every process writes its log"),
    ("shared.tracing", 2, "what every process tells of what takes time"),
    ("shared.loading", 2, "how what is large is loaded"),
    ("shared.alive", 2, "how every process says that it is well"),
    ("shared.services", 3, "the story"),
    ("shared.adapters", 3, "the outside world"),
    ("shared.app", 4, "the only place where parts are put together"),
    ("shared.process", 4, "how processes that talk with people begin and end"),
    ("shared.offers", 4, "what this machine could answer with, for people who start it"),
    ("shared.children", 4, "our processes as children"),
    ("shared.supervisor", 6, "starts the processes, when data of before are saved and up to date"),
    ("shared.findings", 4, "what the doctor's parts say"),
    ("shared.doctor_telegram", 5, "the doctor's look at Telegram"),
    ("shared.doctor_models", 5, "the doctor's look at the models that are asked"),
    ("shared.doctor_money", 5, "the doctor's look at money"),
    ("shared.doctor_sites", 5, "the doctor's look at sites"),
    ("shared.doctor_pooler", 5, "the doctor's look at what stands before PostgreSQL"),
    ("shared.doctor_hosts", 5, "the doctor's look at several hosts"),
    ("shared.sameness", 3, "what hosts must have in common"),
    ("shared.doctor_mcp", 5, "the doctor's look at servers of tools"),
    ("shared.doctor", 5, "looks at everything"),
    ("shared.risks", 2, "what a review of a deployment finds"),
    ("shared.review_settings", 3, "what settings tell of its safety"),
    ("shared.review_files", 5, "what files tell of it"),
    ("shared.review_stored", 4, "what rows tell of it"),
    ("shared.review", 5, "all of it at a terminal"),
    ("shared.known_holes", 5, "what is known of requirements"),
    ("shared.setup_wizard", 5, "talks to a person at a terminal"),
    ("shared.pairing", 5, "decides at a terminal who may write"),
    ("shared.person_cli", 5, "exports and erases at a terminal"),
    ("shared.drafts", 4, "what a person writes in an editor"),
    ("shared.agent_cli", 5, "changes agents at a terminal"),
    ("shared.site_cli", 5, "changes sites at a terminal"),
    ("shared.operator_cli", 5, "lets operators in and out at a terminal"),
    ("shared.key_cli", 5, "makes and revokes keys at a terminal"),
    ("shared.alert_cli", 5, "sends a test of the alerts at a terminal"),
    ("shared.database_cli", 5, "prints the roles of few rights"),
    ("shared.command_cli", 5, "runs commands at a terminal, with the parts that app puts together"),
    ("shared.service_cli", 5, "makes a service of it"),
    ("shared.daily", 4, "the daily backup as a child"),
    ("shared.doctor_backups", 5, "the doctor's look at backups"),
    ("shared.backups", 5, "copies of everything"),
    ("shared.restoring", 6, "puts a copy in the place of what is there"),
    ("shared.upgrading", 7, "brings data to this version"),
    ("shared.replay", 5, "talks to the running system like a person"),
    ("shared.demo", 5, "one person at a terminal, and the running system"),
    ("shared.__main__", 8, "the command line calls all of these"),
    ("bot", 5, "a process"),
    ("web", 5, "a process"),
    ("worker", 5, "a process"),
    ("shared", 0, "the package itself is empty"),
)

# Neighbours on one floor that must not know each other.
STRANGERS: tuple[tuple[str, str, str], ...] = (
    ("shared.services", "shared.adapters", "they meet in app.py; that is what the ports are for"),
    ("shared.adapters", "shared.services", "they meet in app.py; that is what the ports are for"),
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
        ("shared.adapters", "shared.app", "shared.supervisor", "shared.doctor"),
        "SQL belongs to the adapters; app opens the pool, start-up and doctor tell what a server says",
    ),
    ("cryptography", ("shared.adapters.vault",), "what is sealed is sealed in one place"),
    ("dotenv", ("shared.settings", "shared.doctor", "shared.setup_wizard"), "reading and writing .env"),
    (
        "jwt",
        ("web.identity", "shared.adapters.oidc"),
        "what others sign about people",
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
            "shared.settings",
            "shared.agents",
            "shared.sites",
            "shared.bots",
            "shared.logs",
            "shared.replay",
            "shared.setup_wizard",
            "shared.adapters",
            "web",
            "bot.telegram.library",
        ),
        "checks at the doors only; the replay writes settings for its own system; aiogram is built on it",
    ),
    ("pydantic_settings", ("shared.settings",), "settings are read in one place"),
    ("redis", ("shared.adapters", "shared.doctor", "shared.review"), "the doorbell, behind ports"),
    ("segno", ("web.dashboard.qr",), "one picture on one page"),
    (
        "sqlalchemy",
        ("shared.adapters.postgres", "shared.supervisor"),
        "SQL belongs to the adapter; start-up tells a person what a server says",
    ),
    ("sqlmodel", ("shared.adapters.postgres",), "tables are declared in one place"),
    ("tiktoken", ("shared.adapters",), "behind the TokenCounter port"),
    ("watchfiles", ("shared.adapters.workspace_files",), "only where an agent has a folder"),
    ("uvloop", ("shared.process",), "one place chooses the loop of our processes"),
)

# Imported inside functions only: a start without them is faster and smaller.
LATE = {
    "aiogram": "half a second and 30 MB by `bot.telegram.library`, 120 MB without it",
    "watchfiles": "4 MB, and most installations have no folder to watch",
    "anthropic": "0.8 s and 82 MB at import",
    "jsonschema": "4 MB that a process pays for when a tool is called",
    "cryptography": "20 ms and 6 MB; only who has signed-in people pays",
    "jwt": "it brings cryptography along",
    "justhtml": "23 MB, in a process of its own",
    "mcp": "0.8 s and 40 MB at import; only who has configured a server pays",
    "segno": "only who sets up a second factor pays",
    "simpleeval": "only who calculates pays",
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


def test_no_circle_of_imports() -> None:
    graph: dict[str, set[str]] = {}
    for each in imports():
        # A package's own file is run for every module in it, and is empty or a shop window.
        if not each.for_types and each.imported in modules() and not each.importer.startswith(each.imported):
            graph.setdefault(each.importer, set()).add(each.imported)
    try:
        tuple(graphlib.TopologicalSorter(graph).static_order())
    except graphlib.CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_every_module_begins_by_saying_what_it_is_for() -> None:
    found = []
    for name, path in modules().items():
        tree = ast.parse(path.read_text())
        if not tree.body:
            continue
        future = any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body)
        if not ast.get_docstring(tree):
            found.append(f"{name} has no sentence at its beginning")
        elif not future and len(tree.body) > 1:
            found.append(f"{name} lacks `from __future__ import annotations`")
    _complain(found)


def test_every_module_has_a_floor() -> None:
    _complain([f"{name} is on no floor" for name in modules() if _floor(name) is None])


OPENERS: dict[tuple[str, str], dict[str, str]] = {
    ("asyncpg", "connect"): {
        "shared.adapters.postgres.connecting": "reads every address alike: TLS, several hosts, poolers",
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
