"""Freezes the migrations of the present version: `python -m tests.kit.released_migrations`.

`migrations/released.json` has a digest of each migration of a numbered version. A test fails when one of them
changes or disappears. Run the command once, when a version is published; it never changes earlier versions.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from shared.adapters.postgres.db.readiness import (
    FLOOR,
    FORMER,
    RELEASED,
    VERSIONS,
    find_newest_revision,
)
from shared.runtime import read_version

MIGRATIONS = VERSIONS.parent
SHARED = ("alert_kinds.py", "renames.py")
"""Modules that migrations import."""


def compute_digests(migrations: Path = MIGRATIONS) -> dict[str, str]:
    """Return the SHA-256 of each migration, by its path below `migrations`."""
    files = [path for folder in (FORMER, VERSIONS) for path in (migrations / folder.name).glob("0*.*")]
    files += [path for path in migrations.glob("*.py") if path.name in SHARED]
    return {
        path.relative_to(migrations).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(files)
        if path.suffix in (".py", ".sql")
    }


def freeze(released: dict[str, Any], *, version: str, newest: str, digests: dict[str, str]) -> dict[str, Any]:
    """Return the released versions with `version` added as the last one.

    Earlier versions stay as they are.
    """
    earlier = {name: one for name, one in released.items() if name != version}
    frozen = {path for one in earlier.values() for path in one["digests"]}
    mine = {path: digest for path, digest in digests.items() if path not in frozen}
    return {**earlier, version: {"floor": FLOOR, "newest": newest, "digests": mine}}


def find_changes(released: dict[str, Any], digests: dict[str, str]) -> list[str]:
    """Return a line for each migration of a numbered version that was changed or is missing."""
    return [
        f"{path} of {version} {'was changed' if path in digests else 'is missing'}"
        for version, one in released.items()
        for path, digest in one["digests"].items()
        if digests.get(path) != digest
    ]


def main() -> None:
    released = json.loads(RELEASED.read_text())
    frozen = freeze(
        released, version=read_version(), newest=find_newest_revision(), digests=compute_digests()
    )
    RELEASED.write_text(json.dumps(frozen, indent=1) + "\n")
    last = frozen[read_version()]
    print(f"{read_version()}: schema {last['newest']}, {len(last['digests'])} migrations frozen.")


if __name__ == "__main__":
    main()
