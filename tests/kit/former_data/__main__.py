"""Makes the backups again; needs a clone with the whole history."""

from __future__ import annotations

import argparse
import lzma
import os
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path

from tests.kit.former_data import BACKUPS, KEEPSAKE, NOTE, PROGRAMS, SECRET, FormerProgram
from tests.kit.temp_folders import short_folder

ROOT = Path(__file__).parents[3]
LIFE = Path(__file__).with_name("life.py")
LIFE_SECONDS = 300


def make(program: FormerProgram) -> Path:
    """Run the earlier program in a new folder, and return the path of the backup that it made."""
    folder = short_folder("evf-")
    packed = subprocess.run(
        ["git", "archive", program.commit], cwd=ROOT, check=True, capture_output=True, timeout=60
    )
    with tarfile.open(fileobj=BytesIO(packed.stdout)) as files:
        files.extractall(folder / "program", filter="data")
    made = folder / "backup.tar"
    subprocess.run(
        [sys.executable, "-P", LIFE, folder / "data", made, KEEPSAKE, NOTE, SECRET],
        cwd=folder / "program", check=True, timeout=LIFE_SECONDS,
        env={**os.environ, "PYTHONPATH": str(folder / "program"), "EVERTALK_ENV_FILE": ""},
    )  # fmt: skip
    BACKUPS.mkdir(exist_ok=True)
    program.backup.write_bytes(lzma.compress(made.read_bytes(), preset=9))
    return program.backup


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.kit.former_data", description=__doc__)
    parser.add_argument("revision", nargs="*", help="schemas to make; without any, all")
    wanted = parser.parse_args().revision
    for program in PROGRAMS:
        if not wanted or program.revision in wanted:
            path = make(program)
            print(f"{path.name}  {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
