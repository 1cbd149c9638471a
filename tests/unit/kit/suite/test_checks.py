"""Checks beside the tests: their output comes first, and a check that fails is a failure of the run."""

from __future__ import annotations

import pytest

from .conftest import SmallSuite

RUN = """
import sys, tempfile
from pathlib import Path
import pytest
from tests.kit.suite.checks import Checks
with tempfile.TemporaryFile() as output:
    checks = Checks(Path(), output, quick=[["{quick}"]], slow=["{slow}"])
    sys.exit(pytest.main(sys.argv[sys.argv.index("--") + 1 :], plugins=[checks]))
"""
"""One run with checks that are modules of the small suite."""


@pytest.mark.parametrize(
    ("quick", "slow", "failed"),
    [("good", "good", 0), ("bad", "good", 1), ("good", "bad", 1), ("bad", "bad", 2)],
)
def test_failed_check_fails_the_run(suite: SmallSuite, quick: str, slow: str, failed: int) -> None:
    (suite.folder / "good.py").write_text("print('all is well')\n")
    (suite.folder / "bad.py").write_text(
        "import time; time.sleep(1); print('one mistake'); raise SystemExit(3)\n"
    )
    suite.write("test_a.py", "def test_well(): pass")
    outcome = suite.run(workers=0, program=RUN.format(quick=quick, slow=slow))
    assert outcome.code == int(failed > 0)
    assert outcome.closing == ({"failed": failed} if failed else {}) | {"passed": 1}
    assert ("one mistake" in outcome.output) == bool(failed)
