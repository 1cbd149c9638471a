"""Checks the dashboard's scripts against the OpenAPI description: `python -m tests.kit.page_types`.

openapi-typescript makes types of the description, and tsc checks the JSDoc of the pages with them. An editor
finds the types in `node_modules/.cache`, where the command leaves them.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from web.rest.openapi import document
from web.routes import OPERATIONS

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "node_modules" / ".bin"
CACHE = ROOT / "node_modules" / ".cache" / "evertalk"
CHECKED = ("web/static/dashboard/", "web/static/shared/")
"""Folders whose type errors count; the widget is left out, since its state has separate types."""
SECONDS = 240


def is_installed() -> bool:
    """Return whether Node and both programs are installed, as after `npm ci`."""
    names = ("openapi-typescript", "tsc")
    return shutil.which("node") is not None and all((PROGRAMS / name).exists() for name in names)


def list_type_errors(
    folder: Path, *, described: Mapping[str, Any] | None = None, scripts: Path | None = None
) -> list[str]:
    """Write the types of a description to `folder`, and return the type errors of the pages, or of `scripts`
    alone.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "openapi.json").write_text(json.dumps(described or document(OPERATIONS)))
    _run("openapi-typescript", str(folder / "openapi.json"), "-o", str(folder / "api.d.ts"))
    included = {"include": [str(scripts), str(ROOT / "web/types/globals.d.ts")]} if scripts else {}
    config = {
        "extends": str(ROOT / "web" / "tsconfig.json"),
        "compilerOptions": {"paths": {"evertalk-api": [str(folder / "api.d.ts")]}},
        "include": [str(ROOT / "web/static/dashboard/*.js"), str(ROOT / "web/types/globals.d.ts")],
        **included,
    }
    (folder / "tsconfig.json").write_text(json.dumps(config))
    told = _run("tsc", "-p", str(folder / "tsconfig.json"), "--pretty", "false", may_fail=True)
    return [line for line in told.splitlines() if scripts or line.startswith(CHECKED)]


def _run(name: str, *given: str, may_fail: bool = False) -> str:
    done = subprocess.run(
        [PROGRAMS / name, *given], cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    if done.returncode and not may_fail:
        raise RuntimeError(done.stdout + done.stderr)
    return done.stdout


if __name__ == "__main__":
    found = list_type_errors(CACHE)
    sys.stdout.writelines(f"{line}\n" for line in found)
    sys.exit(1 if found else 0)
