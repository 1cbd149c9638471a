"""Under whose rights the servers run: PostgreSQL refuses to be root, and nothing else should be."""

from __future__ import annotations

import os
import pwd
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A system account; without a `uid`, simply ourselves."""

    uid: int | None = None
    gid: int | None = None

    def spawn_options(self) -> dict[str, Any]:
        return {} if self.uid is None else {"user": self.uid, "group": self.gid, "extra_groups": []}

    def own(self, path: Path) -> Path:
        if self.uid is not None and self.gid is not None:
            os.chown(path, self.uid, self.gid)
        return path

    def folder(self, path: Path) -> Path:
        """A folder that only this account (and root) may look into."""
        path.mkdir(mode=0o700, exist_ok=True)
        return self.own(path)

    def can_run(self, path: Path) -> bool:
        """Whether every folder on the way is open to the account; only another account can tell."""
        if self.uid is None:
            return os.access(path, os.X_OK)
        probe = subprocess.run(
            ["/usr/bin/env", "test", "-x", str(path)], cwd="/", timeout=10, **self.spawn_options()
        )
        return probe.returncode == 0


def account_for(folder: Path) -> Account:
    """Ourselves; for root the folder's owner, else `nobody`: no account is ever added to the system."""
    if os.geteuid() != 0:
        return Account()
    owner = folder.stat()
    if owner.st_uid != 0:
        return Account(uid=owner.st_uid, gid=owner.st_gid)
    nobody = pwd.getpwnam("nobody")
    return Account(uid=nobody.pw_uid, gid=nobody.pw_gid)
