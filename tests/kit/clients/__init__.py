"""Clients that common generators make from the OpenAPI description, and a journey with each of them.

Begin with `make_python_client` and `make_typescript_client`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from web.rest.openapi import document
from web.routes import OPERATIONS

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = ROOT / "node_modules" / ".bin"
SECONDS = 240
CONFIG = {
    "content_type_overrides": {"*/*": "application/octet-stream", "audio/mpeg": "application/octet-stream"}
}
"""Settings of openapi-python-client, which knows JSON, text and bytes; types of files become bytes."""


def has_typescript() -> bool:
    """Return whether Node and the needed packages are installed, as after `npm ci`."""
    needed = (PROGRAMS / "openapi-typescript", PROGRAMS / "tsc", PROGRAMS / "esbuild",
              ROOT / "node_modules" / "openapi-fetch")  # fmt: skip
    return shutil.which("node") is not None and all(path.exists() for path in needed)


def make_python_client(folder: Path) -> Path:
    """Generate the package `evertalk_client` in `folder` and compile it; return its parent folder.

    Raises RuntimeError with the generator's output if it fails or warns about an operation.
    """
    described, config = folder / "openapi.json", folder / "config.yml"
    described.write_text(json.dumps(document(OPERATIONS)))
    config.write_text(json.dumps(CONFIG))
    told = run(
        sys.executable, "-m", "openapi_python_client", "generate", "--path", str(described),
        "--config", str(config), "--output-path", str(folder / "evertalk_client"), "--meta", "none",
        "--fail-on-warning",
    )  # fmt: skip
    if "WARNING" in told:
        raise RuntimeError(told)
    run(sys.executable, "-m", "compileall", "-q", str(folder / "evertalk_client"))
    return folder


def make_typescript_client(folder: Path) -> Path:
    """Generate types, check the journey with them, and return the path of the journey bundled for Node.

    Raises RuntimeError with the output of the generator or compiler.
    """
    described, packed = folder / "openapi.json", folder / "journey.mjs"
    described.write_text(json.dumps(document(OPERATIONS)))
    run(str(PROGRAMS / "openapi-typescript"), str(described), "-o", str(folder / "api.d.ts"))
    journey = folder / "journey.ts"
    journey.write_text((Path(__file__).with_name("journey.ts")).read_text(encoding="utf-8"), encoding="utf-8")
    (folder / "node_modules").symlink_to(ROOT / "node_modules")
    options = {
        "strict": True, "noEmit": True, "target": "ES2022", "module": "ES2022", "moduleResolution": "bundler",
        "lib": ["ES2022", "DOM"], "types": [], "skipLibCheck": False,
    }  # fmt: skip
    (folder / "tsconfig.json").write_text(json.dumps({"compilerOptions": options, "files": ["journey.ts"]}))
    run(str(PROGRAMS / "tsc"), "-p", str(folder / "tsconfig.json"), "--pretty", "false")
    run(
        str(PROGRAMS / "esbuild"), str(journey), "--bundle", "--platform=node", "--format=esm",
        f"--outfile={packed}", "--log-level=warning",
    )  # fmt: skip
    return packed


def run(*command: str, **environment: str) -> str:
    """Run a program and return its output. Raises RuntimeError if it fails."""
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False,
        env={**_inherited(), **environment},
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    return done.stdout + done.stderr


def _inherited() -> dict[str, str]:
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"}
