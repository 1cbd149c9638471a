"""What the web process must not load: it has to stay small."""

from __future__ import annotations

import subprocess
import sys


def test_the_web_process_starts_without_the_heavy_packages() -> None:
    program = (
        "import sys, web.__main__\n"
        "import web.dashboard\n"
        "heavy = {'sqlmodel', 'sqlalchemy', 'aiogram', 'anthropic', 'alembic', 'shared.adapters.media'}\n"
        "heavy &= set(sys.modules)\n"
        "sys.exit(' '.join(sorted(heavy)) or 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
