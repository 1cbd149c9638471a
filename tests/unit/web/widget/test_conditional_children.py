"""Children of nodes that a condition draws: a count before `&&` would leave its 0 on the page."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.kit.needed_programs import refuse
from web.server.pages import PACKED, STATIC

SOURCES = [path for path in sorted(STATIC.rglob("*.js")) if PACKED.rstrip("/") not in path.parts]
COUNT = r"(?:length|size|count|total|number|turns|calls|tokens|childElementCount)"
BARE_COUNT = re.compile(rf"(?<![\w$.?!\])])(?:[\w$]+(?:\([^()]*\)|\[[^\]]*\])?\??\.)*{COUNT}\s*&&")
COMPARED = re.compile(r"[<>]=?\s*$|[=!]==?\s*$|[-+*/%]\s*$")
CONDITION = re.compile(r"\b(?:if|while|for)\s*\((?:[^()]|\([^()]*\))*$")
ASKED_AGAIN = re.compile(r"(?:[^?:,;(){}]|\([^()]*\))*\?[^.?]")


def find_bare_counts(source: str) -> list[str]:
    """Return the lines that use a count as a condition whose value can be drawn."""
    found = []
    for match in BARE_COUNT.finditer(source):
        line_start = source.rfind("\n", 0, match.start()) + 1
        before, after = source[line_start : match.start()], source[match.end() :].partition("\n")[0]
        decides = COMPARED.search(before) or CONDITION.search(before) or ASKED_AGAIN.match(after)
        if not decides:
            found.append((before + match[0] + after).strip())
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(STATIC).as_posix())
def test_no_script_draws_the_count_of_its_condition(path: Path) -> None:
    assert find_bare_counts(path.read_text()) == []


@pytest.mark.parametrize(
    "line",
    [
        'starters?.length && h("div", null, starters.map(starter))',
        'show(node, rows.size && h("p"), more)',
        'h("p", null, page.total && t("Of {count}"))',
        "const badge = found.count && icon(DOT)",
        '[found.rows.length && h("b")]',
    ],
)
def test_drawn_count_is_found_in_each_of_its_shapes(line: str) -> None:
    assert find_bare_counts(line) == [line]


@pytest.mark.parametrize(
    "line",
    [
        'starters?.length > 0 && h("div")',
        'Boolean(starters?.length) && h("div")',
        "while (rows.length && rows[0].at < at) rows.shift();",
        "if (more && messages.length && ready) return;",
        "for (; at < lines.length && blank(lines[at]); at++);",
        "const words = !items.length && t('about');",
        "node.hidden = !views.length && !now;",
        "const shown = rows.length && ready ? table(rows) : empty();",
    ],
)
def test_count_that_only_decides_is_allowed(line: str) -> None:
    assert find_bare_counts(line) == []


CHILDREN = """
class Node { constructor() { this.kids = []; } append(one) { this.kids.push(one); } replaceChildren() { this.kids = []; } }
globalThis.Node = Node;
globalThis.document = { createElement: () => new Node(), createElementNS: () => new Node() };
const { h, show } = await import(process.argv[1]);
const given = [false, 0, null, undefined, "", NaN, [[0, ""], "kept"], 7, "0"];
const shown = new Node();
show(shown, ...given);
console.log(JSON.stringify([h("p", null, ...given).kids, shown.kids]));
"""  # noqa: E501


def test_element_skips_what_conditions_leave_and_keeps_text() -> None:
    node = shutil.which("node") or refuse("no node on this machine (Debian: apt-get install nodejs)")
    command = [node, "--input-type=module", "-e", CHILDREN, (STATIC / "shared" / "h.js").as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    kept = ["kept", "7", "0"]
    assert json.loads(done.stdout) == [kept, kept]
