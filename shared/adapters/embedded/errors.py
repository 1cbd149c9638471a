"""Errors of the embedded servers."""

from __future__ import annotations


class EmbeddedServerFailed(Exception):
    """Raised if a server cannot be prepared, started or stopped; `advice` says what an operator can do."""

    def __init__(self, message: str, *, advice: str) -> None:
        super().__init__(message)
        self.advice = advice


class FolderInUse(EmbeddedServerFailed):
    """Raised if another running process owns the data folder; `note` is what it wrote about itself."""

    def __init__(self, folder: str, note: str) -> None:
        super().__init__(
            f"the data folder {folder} is already in use",
            advice="Use the one that runs, stop it, or set EVERTALK_DATA_DIR to another folder.",
        )
        self.note = note
