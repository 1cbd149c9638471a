"""The dashboard's scripts read only fields that the server's answers have."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.page_types import ROOT, is_installed, list_type_errors

pytestmark = [
    pytest.mark.skipif(not is_installed(), reason="npm ci installs the type checker"),
    pytest.mark.timeout(300),
]
NET = ROOT / "web/static/dashboard/net.js"
READS = {
    "person.first_name": 'const one = await ask("/me"); export const wrong = one.first_name;',
    "unknown address": 'const one = await ask("/nobody-serves-this"); export const wrong = one.name;',
    "null": 'const { people } = await ask("/people"); export const wrong = people[0].name.length;',
}


def test_dashboard_scripts_read_declared_fields_only(tmp_path: Path) -> None:
    assert list_type_errors(tmp_path) == []


def test_type_check_finds_reads_that_no_answer_allows(tmp_path: Path) -> None:
    for at, (name, text) in enumerate(READS.items()):
        place = tmp_path / f"page{at}.js"
        place.write_text(f'import {{ ask }} from "{NET}";\n// {name}\n{text}\n')
    found = [line for line in list_type_errors(tmp_path, scripts=tmp_path / "*.js") if "page" in line]
    assert sorted(line.partition(".js")[0][-1] for line in found) == ["0", "1", "2"], found
