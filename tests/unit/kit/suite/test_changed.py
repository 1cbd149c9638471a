"""`./evertalk test --changed`: which tests a change touches, in a small checkout and in this one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.kit.suite.changed import NoChange, find_changed_files, find_touched_tests
from tests.kit.suite.command_line import run_tests
from tests.kit.suite.imports import Graph

from .conftest import ROOT

FILES = {
    "shared/__init__.py": "",
    "shared/core/__init__.py": "",
    "shared/core/money.py": "PRICE = 3",
    "shared/core/ledger.py": "from shared.core.money import PRICE",
    "shared/core/late.py": "def load():\n    from shared.core import money\n    return money",
    "shared/core/typed.py": (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from shared.core.money import PRICE"
    ),
    "shared/core/named.py": "STORES = {'a': 'shared.core.money.PRICE'}",
    "shared/plans/__init__.py": "",
    "shared/plans/fast.py": "PLAN = 1",
    "shared/catalog.py": (
        "from pkgutil import iter_modules\nimport shared.plans as folder\n"
        "PLANS = list(iter_modules(folder.__path__))"
    ),
    "shared/locales/en/chat.json": "{}",
    "shared/locales.py": "FOLDER = 'locales'",
    "web/__init__.py": "",
    "web/__main__.py": "import shared.core.ledger",
    "docs/prices.md": "",
    "tests/__init__.py": "",
    "tests/conftest.py": (
        "import pytest\n@pytest.fixture\ndef till():\n"
        "    from shared.core.money import PRICE\n    return PRICE\n"
        "@pytest.fixture\ndef shop(till):\n    return till\n"
    ),
    "tests/test_ledger.py": "import shared.core.ledger",
    "tests/test_late.py": "import shared.core.late",
    "tests/test_typed.py": "import shared.core.typed",
    "tests/test_named.py": "import shared.core.named",
    "tests/test_shop.py": "def test_shop(shop): pass",
    "tests/test_process.py": "COMMAND = ['python', '-m', 'web']",
    "tests/test_near.py": "from .kit import PRICE",
    "tests/kit.py": "from shared.core.money import *",
    "tests/test_page.py": "PAGE = 'docs/prices.md'",
    "tests/test_plans.py": "import shared.catalog",
    "tests/test_words.py": "import shared.locales",
    "tests/test_other.py": "def test_other(tmp_path): pass",
}
BY_MONEY = {"ledger", "late", "named", "shop", "process", "near"}


@pytest.fixture(scope="module")
def cloned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkout")
    for name, content in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    git(folder, "init", "--quiet", "--initial-branch=main")
    commit(folder)
    return folder


@pytest.fixture(scope="module")
def graph() -> Graph:
    """All modules of this checkout; reading them takes seconds."""
    return Graph.read(ROOT)


def git(folder: Path, *words: str) -> None:
    who = ["-c", "user.name=Anna", "-c", "user.email=anna@example.org"]
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


def commit(folder: Path) -> None:
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "Begin")


@pytest.mark.parametrize(
    ("changed", "touched"),
    [
        ("shared/core/money.py", BY_MONEY),
        ("shared/core/ledger.py", {"ledger", "process"}),
        ("shared/core/typed.py", {"typed"}),
        ("shared/locales/en/chat.json", {"words"}),
        ("shared/plans/fast.py", {"plans"}),
        ("docs/prices.md", {"page"}),
        ("tests/test_other.py", {"other"}),
        ("tests/kit.py", {"near"}),
        ("LICENSE", set()),
    ],
)
def test_change_touches_all_that_import_it(cloned: Path, changed: str, touched: set[str]) -> None:
    found = find_touched_tests([Path(changed)], cloned)
    assert {path.stem.removeprefix("test_") for path in found} == touched


@pytest.mark.parametrize("changed", ["tests/conftest.py", "pyproject.toml", "requirements-test.lock"])
def test_change_of_a_shared_file_touches_all_tests(cloned: Path, changed: str) -> None:
    assert len(find_touched_tests([Path(changed)], cloned)) == sum("/test_" in name for name in FILES)


def test_changed_files_are_those_since_the_branch_began(cloned: Path, tmp_path: Path) -> None:
    git(cloned, "worktree", "add", "--quiet", "-b", "idea", str(tmp_path / "idea"))
    folder = tmp_path / "idea"
    with pytest.raises(NoChange, match="no file differs from main") as nothing:
        find_changed_files(folder)
    assert nothing.value.is_good
    (folder / "shared/core/late.py").write_text("LATE = 1")
    commit(folder)
    (folder / "shared/core/ledger.py").write_text("LEDGER = 1")
    (folder / "tests/test_new.py").write_text("")
    (cloned / "shared/core/named.py").write_text("NAMED = 1")
    git(cloned, "commit", "--quiet", "-am", "Go on")
    told = [path.as_posix() for path in find_changed_files(folder)]
    assert told == ["shared/core/late.py", "shared/core/ledger.py", "tests/test_new.py"]
    assert len(find_changed_files(folder, "HEAD")) == 2


def test_unknown_base_gets_one_line(cloned: Path) -> None:
    said: list[str] = []
    assert run_tests(["--changed=nowhere"], tell=said.append, root=cloned) == 2
    assert said == ["evertalk: git knows no nowhere, so there is nothing to test"]


def test_folder_without_git_gets_one_line(tmp_path: Path) -> None:
    said: list[str] = []
    assert run_tests(["--changed"], tell=said.append, root=tmp_path) == 2
    [line] = said
    assert "not a git repository" in line


def test_every_module_of_the_product_is_seen_by_a_test(graph: Graph) -> None:
    unseen = [
        name
        for name, source in graph.sources.items()
        if name.partition(".")[0] in ("bot", "shared", "web", "worker")
        and not any(graph.sources[each].path.name.startswith("test_") for each in graph.find_touched([name]))
    ]
    assert unseen == []


def test_change_of_a_process_touches_the_faults(graph: Graph) -> None:
    for process in ("bot", "web", "worker"):
        touched = {path.name for path in find_touched_tests([Path(process, "__main__.py")], ROOT, graph)}
        assert {"test_crashes.py", "test_outages.py", "test_telegram.py"} <= touched
    presets = Path("tests/unit/core/presets/test_presets.py")
    assert find_touched_tests([presets], ROOT, graph) == [presets]
