"""Fingerprint of a host: short keyed hashes of what must be equal on all hosts of a deployment."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from shared.config.settings import Settings, find_mcp_file, is_secret, list_declarations, list_setting_names
from shared.core.ops.backups import key_id_of

REFRESH_SECONDS = 60.0
"""Seconds between two reads of the files."""
_MARK_CHARS = 8
"""Characters of each hash."""
_READ_BYTES = 16 * 1024
"""Bytes that are read of each file; a longer file counts by its beginning and size."""
_MOST_FILES = 200
"""Maximum files per folder, since the fingerprint is computed between two heartbeats."""


class HostFingerprint:
    """Function that returns this host's fingerprint: name, secret key's id, and short hashes of settings and
    files.

    Operators compare those of several hosts, which should be equal.
    """

    def __init__(
        self, settings: Settings, key: bytes, workspaces: Path, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._key = key
        self._workspaces = workspaces
        self._clock = clock
        self._looked_at: float | None = None
        self._files: Mapping[str, str] = {}
        self._fixed = {
            "place": f"{socket.gethostname()}:{settings.data_dir}",
            "key": key_id_of(self._key),
            "settings": self._digest_settings(),
        }

    def __call__(self) -> Mapping[str, Any]:
        """Return the fingerprint `{place, key, settings, files}`; the files are read again after
        `REFRESH_SECONDS`.
        """
        now = self._clock()
        if self._looked_at is None or now - self._looked_at >= REFRESH_SECONDS:
            self._looked_at = now
            # A file that is being edited now keeps its earlier hash until the next read.
            with contextlib.suppress(OSError):
                self._files = self._digest_files()
        return {**self._fixed, "files": self._files}

    def _digest_settings(self) -> Mapping[str, str]:
        names, fields = list_setting_names(), type(self._settings).model_fields
        found: dict[str, str] = {}
        for field, declared in list_declarations().items():
            if declared.per_host:
                continue
            value = getattr(self._settings, field)
            if value != fields[field].get_default(call_default_factory=True, validated_data={}):
                plain = value.get_secret_value() if is_secret(field) else value
                found[names[field]] = self._mark(str(plain).encode())
        return found

    def _digest_files(self) -> Mapping[str, str]:
        settings, found = self._settings, dict[str, str]()
        named = {"mcp.json": find_mcp_file(settings), "models": settings.models_file}
        for name, path in {**named, "bots": settings.telegram_bots_file}.items():
            if path is not None and path.is_file():
                found[name] = self._mark(path.read_bytes())
        folders = self._workspaces
        for folder in sorted(folders.iterdir()) if folders.is_dir() else ():
            if folder.is_dir():
                found[f"{folders.name}/{folder.name}"] = self._mark(_digest_folder(folder))
        return found

    def _mark(self, told: bytes) -> str:
        return hmac.new(self._key, told, hashlib.sha256).hexdigest()[:_MARK_CHARS]


def _digest_folder(folder: Path) -> bytes:
    digest, files = hashlib.sha256(), sorted(path for path in folder.rglob("*") if path.is_file())
    for path in files[:_MOST_FILES]:
        with path.open("rb") as file:
            digest.update(
                f"{path.relative_to(folder)}\0{path.stat().st_size}\0".encode() + file.read(_READ_BYTES)
            )
    return digest.digest()
