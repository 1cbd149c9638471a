"""Lists all English texts of the dashboard for translators: from its scripts, its pages and the server.

`python -m tests.kit.dashboard.words fr` prints the texts that have no French translation.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from shared.adapters.postgres.dashboard import job_list_sql
from shared.core.context.memory import NOTE_KINDS
from shared.core.identity import handover, macros, operators, push
from shared.core.ops.alerts import ADVICE, KINDS
from shared.core.values.errors import EvertalkError, OnHold
from shared.locales import FOLDER
from web.dashboard.sign_in.login import MESSAGES

ROOT = Path(__file__).resolve().parents[3]
SCRIPTS = ROOT / "web" / "static" / "dashboard"
_STRING = r'"((?:[^"\\]|\\.)*)"'
_TEXT = re.compile(rf"(?<![\w.])t\(\s*{_STRING}")
_PAIR = re.compile(rf"(?<![\w.])tn\(\s*{_STRING},\s*{_STRING}")
_CALL = re.compile(r"(?<![\w.$])(tn?)\((?!\s*\")")
_MARKED = re.compile(r"\[\[t (.+?)\]\]")
PLACEHOLDER = re.compile(r"\{(\w+)\}")
_SENTENCE = re.compile(r"[A-Z].* .*[.?!]", re.DOTALL)
_WHY = re.compile(r"(?:THEN|ELSE) '([^']+ [^']+)'")

SERVER_FILES = (
    *sorted((ROOT / "web" / "dashboard").rglob("*.py")),
    *(
        ROOT / "shared" / "services" / "admin" / f"{subject}_service.py"
        for subject in ("agent", "alert", "pairing", "person", "site")
    ),
    ROOT / "web" / "security.py",
    ROOT / "web" / "rest" / "operation.py",
    ROOT / "shared" / "adapters" / "postgres" / "people" / "second_factors.py",
    ROOT / "shared" / "adapters" / "postgres" / "dashboard" / "read_models.py",
    ROOT / "shared" / "adapters" / "postgres" / "compaction" / "jobs.py",
    ROOT / "shared" / "core" / "identity" / "passwords.py",
    ROOT / "shared" / "core" / "identity" / "macros.py",
    ROOT / "shared" / "services" / "tools" / "handover_actions.py",
)
"""Files whose sentences an operator can read on a page; a sentence with backticks is for programs."""
FILLED_FILES = (
    *SERVER_FILES,
    ROOT / "shared" / "core" / "identity" / "operators.py",
    ROOT / "shared" / "core" / "identity" / "handover.py",
)
"""Files whose sentences with inserted values are listed, too; the values are numbered."""
NOT_ON_PAGES = ("metrics.py",)
ONLY_IN_SHELL = {
    "Evertalk does not run, and only it sends alerts. Start it, then try again.",
    "A name of a site has 1 to 40 of a-z, 0-9, _ and -, no mark first.",
    "A name of an agent has 1 to 40 of a-z, 0-9, _ and -, no mark first.",
    "This agent still answers. Assign its conversations, sites and bots to another agent first.",
    "{1} stays: whoever has no other agent has this one.",
}
"""Sentences of services that only verbs of the shell print."""
SERVER_NAMES = (
    "viewer", "operator", "admin", *NOTE_KINDS, "personal", "public", "off", "optional", "required", "set",
    "not set", "goal", "question", "action", "constraint", "artifact", "promise", "saved", "nothing",
    "running", "failed", "limit", "auto", "turns", "manual", "overflow", "idle", "window", "polling",
    "webhook", "pairing", "allowlist", "open", "price list", "models file",
)  # fmt: skip
"""Names of states and kinds that pages show as the server returns them."""


def script_texts() -> set[str]:
    """Return the first arguments of all calls of `t`."""
    return {json.loads(f'"{text}"') for source in _scripts() for text in _TEXT.findall(source)}


def plural_texts() -> set[tuple[str, str]]:
    """Return the pairs of texts of all calls of `tn`; the second text is the key."""
    return {
        (json.loads(f'"{one}"'), json.loads(f'"{other}"'))
        for source in _scripts()
        for one, other in _PAIR.findall(source)
    }


def unreadable_calls() -> list[str]:
    """Return the calls of `t` and `tn` whose text is not a literal, so that it cannot be found."""
    return [
        f"{path.name}: {source[found.start() : found.start() + 60]!r}"
        for path, source in _sources()
        if path.name != "i18n.js"
        for found in _CALL.finditer(source)
    ]


def page_texts() -> set[str]:
    return {text for path in SCRIPTS.glob("*.html") for text in _MARKED.findall(path.read_text("utf-8"))}


def server_texts() -> set[str]:
    """Return the texts of the server that a page shows: sentences, and names of states."""
    sentences = {text for path in SERVER_FILES if path.name not in NOT_ON_PAGES for text in _sentences(path)}
    errors = [one for module in (operators, handover, push, macros) for one in vars(module).values()] + [
        OnHold
    ]
    advice = {
        one.advice
        for one in errors
        if isinstance(one, type) and issubclass(one, EvertalkError) and one.advice
    }
    titled = {text for title_and_advice in KINDS.values() for text in title_and_advice}
    reasons = {
        why
        for statement in (job_list_sql.SKIPPED_JOBS, job_list_sql.SKIPPED_PARTS)
        for why in _WHY.findall(statement.sql)
    }
    filled = {text for path in FILLED_FILES for text in _filled(path)}
    return (
        {
            *sentences,
            *filled,
            *advice,
            *titled,
            *ADVICE.values(),
            *MESSAGES.values(),
            *reasons,
            *SERVER_NAMES,
        }
        - {""}
        - ONLY_IN_SHELL
    )


def keys() -> set[str]:
    """Return all keys that the file `dashboard.json` of a language must have."""
    return script_texts() | page_texts() | server_texts() | {other for _, other in plural_texts()}


def _scripts() -> Iterator[str]:
    return (source for _, source in _sources())


def _sources() -> Iterator[tuple[Path, str]]:
    for path in sorted(SCRIPTS.glob("*.js")):
        yield path, re.sub(r"/\*\*.*?\*/", "", path.read_text("utf-8"), flags=re.DOTALL)


def _sentences(path: Path) -> Iterator[str]:
    """Yield the string constants that read as a sentence, without docstrings and parts of f-strings.

    The `sentence` of an error class is left out, since pages show its advice.
    """
    tree = ast.parse(path.read_text("utf-8"))
    left_out = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr | ast.Expr) or _is_error_sentence(node)
        for part in ast.walk(node)
        if isinstance(node, ast.JoinedStr) or part is getattr(node, "value", None)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in left_out and "`" not in text:
                if _SENTENCE.fullmatch(text):
                    yield text


def _is_error_sentence(node: ast.AST) -> bool:
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "sentence"


def _filled(path: Path) -> Iterator[str]:
    """Yield the f-strings that read as a sentence, with numbered placeholders: `{1} is {2}.`"""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.JoinedStr):
            numbers = count(1)
            parts = (
                part.value if isinstance(part, ast.Constant) else f"{{{next(numbers)}}}"
                for part in node.values
            )
            text = "".join(map(str, parts))
            if re.fullmatch(r"[A-Z{].* .*[.?!]", text, re.DOTALL) and "`" not in text:
                yield text


def missing(language: str) -> dict[str, str | dict[str, str]]:
    """Return the texts without a translation by key; a text with a number has both English forms."""
    path = FOLDER / language / "dashboard.json"
    known = json.loads(path.read_text("utf-8")) if path.exists() else {}
    counted = {other: {"one": one, "other": other} for one, other in plural_texts()}
    return {key: counted.get(key, key) for key in sorted(keys() - set(known), key=str.lower)}


if __name__ == "__main__":
    print(json.dumps(missing(sys.argv[1]), ensure_ascii=False, indent=2))
