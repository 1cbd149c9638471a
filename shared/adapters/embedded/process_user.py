"""System account of the servers: PostgreSQL refuses to run as root, and other servers should not."""

from __future__ import annotations

import contextlib
import grp
import logging
import os
import pwd
import shutil
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SHARED = "nobody"
"""Account of root's servers if no other can be created; programs of the system may share its rights."""
_SECONDS = 30
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessUser:
    """System account that runs the servers; without a `uid`, the account of this process."""

    uid: int | None = None
    gid: int | None = None

    def spawn_options(self) -> dict[str, Any]:
        """Return arguments of `subprocess.Popen` that run a child under this account."""
        return {} if self.uid is None else {"user": self.uid, "group": self.gid, "extra_groups": []}

    def own(self, path: Path) -> Path:
        """Make this account the owner of a file or folder, and return the path."""
        if self.uid is not None and self.gid is not None:
            os.chown(path, self.uid, self.gid)
        return path

    def folder(self, path: Path) -> Path:
        """Create a folder with mode 0700 for this account, or take over an existing one; return its path."""
        path.mkdir(mode=0o700, exist_ok=True)
        self.take(path)
        return self.own(path)

    def take(self, path: Path) -> None:
        """Make this account the owner of a folder and its files, left by servers that must have ended."""
        if self.uid is None or self.gid is None or path.lstat().st_uid == self.uid:
            return
        # Root owns the folder until all files are changed; after a crash in between the next call begins
        # again.
        os.chown(path, 0, 0)
        for _, folders, files, at in os.fwalk(path):
            for name in (*folders, *files):
                with contextlib.suppress(FileNotFoundError):
                    self._take_one(name, at)
        self.own(path)

    def _take_one(self, name: str, at: int) -> None:
        assert self.uid is not None
        assert self.gid is not None
        if _may_change_hands(os.stat(name, dir_fd=at, follow_symlinks=False)):
            os.chown(name, self.uid, self.gid, dir_fd=at, follow_symlinks=False)

    @property
    def passing(self) -> int:
        """Mode bits by which this account passes through root's folders; 0 if it is the account of this
        process.
        """
        if self.uid is None:
            return 0
        return 0o010 if self._has_a_group_of_its_own() else 0o011

    def let_through(self, folder: Path) -> None:
        """Set the mode of a folder so that this account can pass through it but not list it."""
        if self.passing == 0o010 and self.gid is not None:
            os.chown(folder, -1, self.gid)
        folder.chmod(0o700 | self.passing)

    def can_run(self, path: Path) -> bool:
        """Return whether the account can execute a file or pass a folder, tested by a child process."""
        if self.uid is None:
            return os.access(path, os.X_OK)
        probe = subprocess.run(
            ["/usr/bin/env", "test", "-x", str(path)], cwd="/", timeout=10, **self.spawn_options()
        )
        return probe.returncode == 0

    @property
    def is_shared(self) -> bool:
        """Return whether the account is SHARED, whose rights other programs of the system may have."""
        return self.uid is not None and self.uid == pwd.getpwnam(SHARED).pw_uid

    def _has_a_group_of_its_own(self) -> bool:
        if self.is_shared or self.gid in (None, 0):
            return False
        others = any(one.pw_gid == self.gid and one.pw_uid != self.uid for one in pwd.getpwall())
        try:
            members = {pwd.getpwnam(name).pw_uid for name in grp.getgrgid(self.gid or 0).gr_mem}
        except KeyError:
            return False
        return not others and members <= {self.uid}


def find_account(folder: Path, name: str = SHARED) -> ProcessUser:
    """Return the account for the servers: that of this process.

    As root, it is the folder's owner, else `name`, else SHARED.
    """
    if os.geteuid() != 0:
        return ProcessUser()
    owner = folder.stat()
    if owner.st_uid != 0:
        return ProcessUser(uid=owner.st_uid, gid=owner.st_gid)
    found = _find_user(name) or pwd.getpwnam(SHARED)
    return ProcessUser(uid=found.pw_uid, gid=found.pw_gid)


def make_account(name: str) -> bool:
    """Create the account `name` if it is missing; return whether it exists afterwards.

    False unless run as root.
    """
    if os.geteuid() != 0 or _find_user(name) is not None:
        return os.geteuid() == 0
    for command in _ways_to_make(name):
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=_SECONDS,
        )  # fmt: skip
        if done.returncode != 0 and _find_user(name) is None:
            _log.warning("the account %s cannot be made: %s", name, done.stdout.strip()[:300])
            return False
    return _find_user(name) is not None


def _ways_to_make(name: str) -> list[list[str]]:
    """Return the commands that create a system account without login; empty without such a tool."""
    if shutil.which("useradd"):
        nowhere = ["--no-create-home", "--home-dir", "/nonexistent", "--shell", "/usr/sbin/nologin"]
        return [["useradd", "--system", "--user-group", *nowhere, name]]
    if shutil.which("adduser") and shutil.which("addgroup"):
        # Arguments of BusyBox.
        nowhere = ["-H", "-h", "/nonexistent", "-s", "/sbin/nologin"]
        return [["addgroup", "-S", name], ["adduser", "-S", "-D", *nowhere, "-G", name, name]]
    return []


def _find_user(name: str) -> pwd.struct_passwd | None:
    """Return the user `name`; None if it is unknown or has uid 0, which PostgreSQL refuses."""
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        return None
    return found if found.pw_uid else None


def _may_change_hands(found: os.stat_result) -> bool:
    """Return whether a file's owner may be changed: not root's, and a folder or a file with one link."""
    return found.st_uid != 0 and (stat.S_ISDIR(found.st_mode) or found.st_nlink == 1)
