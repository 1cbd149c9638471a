"""What browsers are sent to: the committed files are what the sources make, and nothing else is packed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.kit.needed_programs import refuse
from web.server.pages import LOCALES, PACKED, STATIC, Files

ROOT = STATIC.parents[1]
DIST = STATIC / PACKED


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def npm() -> str:
    """Where there is none the test is skipped; in CI it fails."""
    return shutil.which("npm") or refuse("no npm on this machine (Debian: apt-get install nodejs npm)")


@pytest.mark.timeout(300)
def test_the_sources_make_the_committed_files(tmp_path: Path) -> None:
    for name in ("package.json", "package-lock.json", "web/build.mjs"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(LOCALES / "en", tmp_path / "shared/locales/en")
    shutil.copytree(STATIC, tmp_path / "web/static", ignore=shutil.ignore_patterns(PACKED.rstrip("/")))
    quiet = ("--ignore-scripts", "--prefer-offline", "--no-audit", "--no-fund", "--no-update-notifier")
    for command in (("ci", *quiet), ("run", "build")):
        done = subprocess.run(
            [npm(), *command], cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    made = files_of(tmp_path / "web/static" / PACKED)
    old = {name for name, body in made.items() if files_of(DIST).get(name) != body}
    assert (old, files_of(DIST).keys() - made.keys()) == (set(), set()), "run `npm run build` and commit"


def test_the_packages_are_pinned_and_name_no_host() -> None:
    lock = (ROOT / "package-lock.json").read_text()
    assert re.search(r'"esbuild": "\d+\.\d+\.\d+"', (ROOT / "package.json").read_text())
    assert lock.count('"version"') == lock.count('"integrity"')
    assert "://" not in lock


def test_the_widget_is_served_packed_and_its_sources_stay_readable() -> None:
    files = Files()
    for name in ("widget/main.js", "widget/chat.js", "widget/page.js", "widget.js"):
        source, small = files.get(name), files.get(name, packed=True)
        assert source is not None
        assert small is not None
        assert source.body == (STATIC / name).read_bytes()
        known = " ".join(files.languages).encode()
        assert small.body == (DIST / name).read_bytes().replace(b"[[languages]]", known)
        assert b"/**" not in small.body
    assert files.get("dashboard/i18n.js", packed=True) == files.get("dashboard/i18n.js")
    assert files.get("dist/widget/main.js") is files.get("dist/widget/main.js", packed=True) is None


def test_a_packed_file_stands_before_its_source_and_changes_the_digest(tmp_path: Path) -> None:
    (tmp_path / "widget").mkdir()
    (tmp_path / "dist/widget").mkdir(parents=True)
    (tmp_path / "widget.js").write_text('import("static/widget/main.js");')
    (tmp_path / "widget/main.js").write_text("export const long = 1;")
    (tmp_path / "dist/widget/main.js").write_text("export{a as long};")
    first = Files(tmp_path)
    small = first.get("widget/main.js", packed=True)
    assert small is not None
    assert small.body == b"export{a as long};"
    assert first.widget is not None
    assert first.widget.body.decode() == f'import("static-{first.digest}/widget/main.js");'
    (tmp_path / "widget/main.js").write_text("export const long = 1; // no browser gets this one")
    assert Files(tmp_path).digest == first.digest
    (tmp_path / "dist/widget/main.js").write_text("export{b as long};")
    assert Files(tmp_path).digest != first.digest
