"""Finds every regular expression of the product and hunts each with inputs made from its own parse tree.

The work of a pattern depends on the pattern alone. `python -m tests.unit.security.pattern_hunt` hunts each
one with all inputs and lists it in `hunted_patterns.txt`. A run of the day takes few inputs for a listed
pattern, and all for any other.
"""

from __future__ import annotations

import ast
import functools
import gc
import hashlib
import importlib
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sre: Any = importlib.import_module("re._constants")
parser: Any = importlib.import_module("re._parser")
ROOT = Path(__file__).resolve().parents[3]
PRODUCT = ("shared", "bot", "web", "worker")
CALLS = ("compile", "search", "match", "fullmatch", "split", "findall", "finditer", "sub", "subn")
FLAGS_AT = {"compile": 1, "split": 3, "sub": 4, "subn": 4}
"""Index of the argument with flags; a text that another call makes stands before it."""
ANCHORED = ("match", "fullmatch")
HUNTED = Path(__file__).with_name("hunted_patterns.txt")
"""Digests of patterns that passed a hunt with all inputs."""
ALPHABET = (
    "".join(map(chr, range(9, 14)))
    + "".join(map(chr, range(32, 127)))
    + ("é’“”„«»—…。：！<＜・漢字ЖжאΩ\u200b\u00ad\u2063")
)
"""Characters that patterns of the product tell apart."""
MOST_PREFIXES = 7
MOST_CHARS = 9
LEAST_SECONDS = 0.001
"""CPU time below which a search is too short to be measured."""
GROWTH = 5.0
"""Times the work may grow when the input grows four times."""
SIZES = (24, 40, 48, 60, 240, 2_000)
"""Sizes of the first inputs; the small ones end a pattern whose work doubles with each character."""
FEW_CHARS = 100
"""Inputs below this size are searched at once by every pattern that is not exponential."""


@dataclass(frozen=True, slots=True)
class Found:
    """One pattern of the product, its place, and how it is applied."""

    place: str
    pattern: re.Pattern[Any]
    method: str

    @property
    def digest(self) -> str:
        """Digest of all that decides how much work an input is."""
        told = repr((self.pattern.pattern, self.pattern.flags, self.method))
        return hashlib.sha256(told.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Dynamic:
    """A call whose pattern is only known when it runs."""

    place: str
    source: str


def patterns() -> tuple[list[Found], list[Dynamic]]:
    """Return every pattern of the product, and every call whose pattern cannot be evaluated from outside."""
    found: dict[tuple[Any, int, str], Found] = {}
    dynamic: list[Dynamic] = []
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sources()}
    public = _methods(trees.values())
    for path, tree in trees.items():
        if not _names_re(tree):
            continue
        module = importlib.import_module(_module_name(path))
        held = list(_held(vars(module)))
        private = _methods([tree])
        for name, pattern in held:
            method = _method((private if name.startswith("_") else public).get(name, {"search"}))
            place = f"{path.relative_to(ROOT)}::{name}"
            found.setdefault((pattern.pattern, pattern.flags, method), Found(place, pattern, method))
        sources_held = {pattern.pattern for _, pattern in held}
        for call in ast.walk(tree):
            if not _is_call(call):
                continue
            assert isinstance(call, ast.Call)
            assert isinstance(call.func, ast.Attribute)
            made = _evaluate(call, vars(module))
            if made is None:
                dynamic.append(Dynamic(str(path.relative_to(ROOT)), ast.unparse(call.args[0])))
            elif made.pattern not in sources_held:
                place = f"{path.relative_to(ROOT)}::{made.pattern!r}"
                method = "search" if call.func.attr not in ANCHORED else call.func.attr
                found.setdefault((made.pattern, made.flags, method), Found(place, made, method))
    return list(found.values()), dynamic


def sources() -> Iterator[Path]:
    for folder in PRODUCT:
        yield from sorted((ROOT / folder).rglob("*.py"))


def _module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _names_re(tree: ast.AST) -> bool:
    return any(
        isinstance(node, ast.Import) and any(name.name == "re" for name in node.names)
        for node in ast.walk(tree)
    )


def _is_call(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "re"
        and node.func.attr in CALLS
    )


def _evaluate(call: ast.Call, names: Mapping[str, Any]) -> re.Pattern[Any] | None:
    flags = next((word.value for word in call.keywords if word.arg == "flags"), None)
    at = FLAGS_AT.get(call.func.attr, 2) if isinstance(call.func, ast.Attribute) else 2
    if flags is None and len(call.args) > at and "re." in ast.unparse(call.args[at]):
        flags = call.args[at]
    try:
        pattern = _value(call.args[0], names)
        return re.compile(pattern, _value(flags, names) if flags is not None else 0)
    except Exception:
        return None


def _value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    return eval(compile(ast.Expression(node), "<pattern>", "eval"), dict(names))


def _held(names: Mapping[str, Any]) -> Iterator[tuple[str, re.Pattern[Any]]]:
    """Yield the patterns that a module's constants hold, also inside tuples and mappings."""

    def within(value: Any, depth: int = 0) -> Iterator[re.Pattern[Any]]:
        if isinstance(value, re.Pattern):
            yield value
        elif depth < 4 and isinstance(value, Mapping):
            yield from (one for part in value.values() for one in within(part, depth + 1))
        elif depth < 4 and isinstance(value, tuple | list | frozenset | set):
            yield from (one for part in value for one in within(part, depth + 1))
        elif (
            depth < 4
            and type(value).__module__.split(".")[0] in PRODUCT
            and hasattr(value, "__dataclass_fields__")
        ):
            fields = (getattr(value, name, None) for name in value.__dataclass_fields__)
            yield from (one for part in fields for one in within(part, depth + 1))

    for name, value in list(names.items()):
        if not name.startswith("__"):
            yield from ((name, pattern) for pattern in within(value))


def _methods(trees: Iterable[ast.AST]) -> dict[str, set[str]]:
    """Return the methods called on each name; a name that is passed on counts as searched."""
    uses: dict[str, set[str]] = {}
    for tree in trees:
        called: set[int] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
                held = node.value
                name = held.id if isinstance(held, ast.Name) else held.attr
                uses.setdefault(name, set()).add(node.attr)
                called.add(id(held))
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and id(node) not in called:
                uses.setdefault(node.id, set()).add("search")
    return uses


def _method(used: set[str]) -> str:
    known = used & {*CALLS}
    if known and known <= {"fullmatch"}:
        return "fullmatch"
    return "match" if known and known <= {*ANCHORED} else "search"


# What is fed to a pattern


def hostile(pattern: re.Pattern[Any]) -> Iterator[tuple[Any, Any, Any]]:
    """Yield (beginning, repeated part, end) made of what the pattern asks for."""
    raw = isinstance(pattern.pattern, bytes)
    tree = parser.parse(pattern.pattern, pattern.flags & ~re.UNICODE if not raw else pattern.flags)
    chars = _representatives(tree, pattern.flags)
    prefixes = list(dict.fromkeys(["", *_prefixes(tree, pattern.flags)]))
    prefixes = [*prefixes[:1], *sorted(prefixes[1:], key=len)][: MOST_PREFIXES * 3]
    step = max(1, len(prefixes) // MOST_PREFIXES)
    prefixes = prefixes[::step]
    pumps = [*chars, *(a + b for a in chars for b in chars if a != b), *_bodies(tree, pattern.flags)]
    pumps += [prefix + char for prefix in prefixes if prefix for char in ("", *chars)]
    ends = ("", "\x00", "q", "\x00\n")
    for prefix in prefixes:
        for pump in dict.fromkeys(pumps):
            for end in ends[:3] if prefix else ends:
                parts = (prefix, pump, end)
                yield tuple(part.encode("latin-1", "replace") for part in parts) if raw else parts  # type: ignore[misc]


def _atoms(tree: Any, flags: int) -> Iterator[Callable[[str], bool]]:
    for op, arg in tree:
        if op in (sre.LITERAL, sre.NOT_LITERAL, sre.IN, sre.ANY):
            yield functools.partial(_accepts, op, arg, flags)
        else:
            for part in _parts(op, arg):
                yield from _atoms(part, flags)


def _parts(op: Any, arg: Any) -> list[Any]:
    """Return the sub-trees of a node."""
    if op is sre.SUBPATTERN:
        return [arg[3]]
    if op is sre.BRANCH:
        return list(arg[1])
    if op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
        return [arg[2]]
    if op in (sre.ASSERT, sre.ASSERT_NOT):
        return [arg[1]]
    if op is sre.ATOMIC_GROUP:
        return [arg]
    if op is sre.GROUPREF_EXISTS:
        return [part for part in arg[1:] if part is not None]
    return []


def _accepts(op: Any, arg: Any, flags: int, char: str) -> bool:
    both = (char, char.lower(), char.upper()) if flags & re.IGNORECASE else (char,)
    return any(_takes(op, arg, ord(one)) for one in both if len(one) == 1)


def _takes(op: Any, arg: Any, code: int) -> bool:
    if op is sre.LITERAL:
        return bool(code == arg)
    if op is sre.NOT_LITERAL:
        return bool(code != arg)
    if op is sre.ANY:
        return code != 10
    negated = (sre.NEGATE, None) in arg
    return negated != any(_is_member(kind, value, code) for kind, value in arg)


def _is_member(kind: Any, value: Any, code: int) -> bool:
    if kind is sre.LITERAL:
        return bool(code == value)
    if kind is sre.RANGE:
        return bool(value[0] <= code <= value[1])
    return kind is sre.CATEGORY and _in_category(value, chr(code))


def _in_category(category: Any, char: str) -> bool:
    word = char.isalnum() or char == "_"
    table = {
        sre.CATEGORY_DIGIT: char.isdecimal(),
        sre.CATEGORY_NOT_DIGIT: not char.isdecimal(),
        sre.CATEGORY_SPACE: char.isspace(),
        sre.CATEGORY_NOT_SPACE: not char.isspace(),
        sre.CATEGORY_WORD: word,
        sre.CATEGORY_NOT_WORD: not word,
    }
    return table[category]


def _representatives(tree: Any, flags: int) -> list[str]:
    """Return one character of each kind that the pattern tells apart, those of most atoms first."""
    atoms = list(_atoms(tree, flags))
    literals = "".join(sorted({chr(arg) for op, arg in _flat(tree) if op is sre.LITERAL}))
    kinds: dict[tuple[bool, ...], str] = {}
    for char in ALPHABET + literals:
        signature = (*(atom(char) for atom in atoms), char.isalnum() or char == "_", char == "\n")
        kinds.setdefault(signature, char)
    repeated = [atom for body in _repeats(tree) for atom in _atoms(body, flags)]
    ranked = sorted(kinds.values(), key=lambda char: -sum(atom(char) for atom in repeated))
    return ranked[:MOST_CHARS]


def _flat(tree: Any) -> Iterator[tuple[Any, Any]]:
    for op, arg in tree:
        yield op, arg
        for part in _parts(op, arg):
            yield from _flat(part)


def _repeats(tree: Any) -> Iterator[Any]:
    """Yield the bodies of repeats that may go on for more than a few characters."""
    for op, arg in _flat(tree):
        if op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT) and arg[1] > 16:
            yield arg[2]


def _sample(tree: Any, flags: int, branch: int = 0) -> str:
    """Return a short text that the tree takes, as far as its own characters decide it."""
    out: list[str] = []
    for op, arg in tree:
        if op in (sre.LITERAL, sre.NOT_LITERAL, sre.IN, sre.ANY):
            if op is sre.LITERAL:
                out.append(chr(arg))
            else:
                out.append(next((c for c in "a0 " + ALPHABET if _accepts(op, arg, flags, c)), "a"))
        elif op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            out.append(_sample(arg[2], flags, branch) * min(arg[0], 40))
        elif op is sre.BRANCH:
            out.append(_sample(arg[1][branch % len(arg[1])], flags, branch))
        elif op in (sre.SUBPATTERN, sre.ATOMIC_GROUP):
            out.append(_sample(_parts(op, arg)[0], flags, branch))
    return "".join(out)


def _prefixes(tree: Any, flags: int, before: str = "") -> Iterator[str]:
    """Yield what stands before each repeat, once for each branch of an alternative."""
    said = before
    for op, arg in tree:
        if op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT) and arg[1] > 16:
            yield said
        if op in (sre.ASSERT, sre.ASSERT_NOT) and arg[0] < 0:
            said += _sample(arg[1], flags)
            continue
        for part in _parts(op, arg):
            yield from _prefixes(part, flags, said)
        said += _sample([(op, arg)], flags)


def _bodies(tree: Any, flags: int) -> Iterator[str]:
    """Yield texts that one round of each repeat takes."""
    for body in _repeats(tree):
        for branch in range(4):
            yield _sample(body, flags, branch) or "a"


# How the work grows


def seconds(run: Callable[[], object], *, times: int = 1) -> float:
    """Return the least CPU seconds of this thread that a run took, without collections of garbage."""
    least = float("inf")
    collects = gc.isenabled()
    gc.disable()
    try:
        for _ in range(times):
            start = time.thread_time()
            run()
            least = min(least, time.thread_time() - start)
    finally:
        if collects:
            gc.enable()
    return least


def apply(found: Found, text: Any) -> Callable[[], object]:
    if found.method == "search":
        return lambda: sum(1 for _ in found.pattern.finditer(text))
    return functools.partial(getattr(found.pattern, found.method), text)


def grows_too_fast(
    work: Callable[[int], Callable[[], object]], *, start: int = 500, most: int = 200_000
) -> float:
    """Return by how much the work grows with an input four times as long, or 0 if that is within `GROWTH`.

    The least of several CPU times is compared, at a size that takes long enough to be measured; a machine
    that is busy makes one attempt wrong, not all of them.
    """
    chars = start
    while seconds(work(chars)) < LEAST_SECONDS and chars * 4 <= most:
        chars *= 2
    worst = float("inf")
    for _ in range(5):
        small, large = seconds(work(chars), times=3), seconds(work(chars * 4), times=2)
        worst = min(worst, large / max(small, LEAST_SECONDS / 4))
        if worst <= GROWTH:
            return 0.0
    return worst


def fill(parts: tuple[Any, Any, Any], chars: int) -> Any:
    beginning, repeated, end = parts
    return beginning + repeated * max(1, chars // len(repeated)) + end


def hunt(found: Found, *, most: int | None = None) -> tuple[tuple[Any, Any, Any], float] | None:
    """Return the hostile input that makes the work grow too fast, and by how much, or None.

    `most` inputs are tried, more or less, out of all kinds; without it, all of them are.
    """
    usual: list[float] = []
    inputs = list(hostile(found.pattern))
    for parts in inputs[:: max(1, len(inputs) // most) if most else 1]:
        if not parts[1]:
            continue
        took = 0.0
        for chars in SIZES:
            took = seconds(apply(found, fill(parts, chars)))
            if took > 10 * LEAST_SECONDS:
                break
        if chars < FEW_CHARS:
            return parts, float("inf")
        usual.append(took)
        quick = sorted(usual)[len(usual) // 4]
        if took < LEAST_SECONDS or took < 1.6 * quick:
            continue
        start = max(SIZES[-1] // 4, chars // 4)

        def work(size: int, parts: tuple[Any, Any, Any] = parts) -> Callable[[], object]:
            return apply(found, fill(parts, size))

        if growth := grows_too_fast(work, start=start, most=20_000):
            return parts, growth
    return None


# The shape that is forbidden


def overlapping_neighbours(pattern: re.Pattern[Any]) -> tuple[str, str] | None:
    """Return two neighbouring unbounded repeats that take the same character, or None.

    Whatever both take can be shared out between them in as many ways as there are characters; the first one
    has to be possessive.
    """
    tree = parser.parse(pattern.pattern, pattern.flags)
    return _neighbours(tree, pattern.flags, [])


def _neighbours(  # noqa: C901  one walk over the kinds of nodes
    tree: Any, flags: int, open_repeats: list[Any]
) -> tuple[str, str] | None:
    """Look through one sequence; only optional parts stand between `open_repeats` and its beginning."""
    near = list(open_repeats)
    for op, arg in tree:
        if op in (sre.AT, sre.ASSERT, sre.ASSERT_NOT):
            continue
        unbounded = op in (sre.MAX_REPEAT, sre.MIN_REPEAT) and arg[1] > 1_000
        if op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT) and len(arg[2]) == 1:
            inner = arg[2][0]
            if inner[0] in (sre.LITERAL, sre.NOT_LITERAL, sre.IN, sre.ANY):
                if arg[1] > 1_000:
                    for other in near:
                        if shared := [c for c in ALPHABET if _both(other, inner, flags, c)]:
                            return str(other), f"{inner} share {shared[0]!r}"
                if arg[0] > 0:
                    near = []
                if unbounded:
                    near.append(inner)
                continue
        for part in _parts(op, arg):
            if found := _neighbours(part, flags, near):
                return found
        if _width(op, arg) > 0:
            near = []
    return None


def _both(one: Any, other: Any, flags: int, char: str) -> bool:
    return _accepts(one[0], one[1], flags, char) and _accepts(other[0], other[1], flags, char)


def _width(op: Any, arg: Any) -> int:
    if op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT) and arg[0] == 0:
        return 0
    if op is sre.BRANCH:
        return min(sum(_width(*node) for node in part) for part in arg[1])
    if op in (sre.SUBPATTERN, sre.ATOMIC_GROUP, sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
        return sum(_width(*node) for node in _parts(op, arg)[0])
    return 1 if op in (sre.LITERAL, sre.NOT_LITERAL, sre.IN, sre.ANY, sre.GROUPREF) else 0


# Which patterns have been hunted


def read_hunted() -> frozenset[str]:
    """Return the digests of all patterns that passed a hunt with all inputs."""
    return frozenset(HUNTED.read_text(encoding="utf-8").split()) if HUNTED.exists() else frozenset()


def write_hunted() -> list[str]:
    """Hunt all patterns with all inputs, list those that pass, and return the places of the others."""
    caught = {one.digest: one.place for one in patterns()[0] if hunt(one) is not None}
    passed = {one.digest for one in patterns()[0]} - caught.keys()
    HUNTED.write_text("\n".join(sorted(passed)) + "\n", encoding="utf-8")
    return sorted(caught.values())


if __name__ == "__main__":
    for place in write_hunted():
        print(f"not listed, its work grows too fast: {place}", file=sys.stderr)
