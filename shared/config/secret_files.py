"""Secrets from files: NAME_FILE names the file of NAME, as Docker and Kubernetes mount their secrets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

SUFFIX = "_FILE"
MAX_BYTES = 65_536
"""Size limit of such a file; the longest setting has 8,000 characters."""


def read_secret_file(path: str) -> str:
    """Return the text of a file without its line end; raises ValueError, which never shows the text."""
    try:
        if not Path(path).is_file():
            raise ValueError(f"there is no file {path}")
        with Path(path).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    if len(data) > MAX_BYTES:
        raise ValueError(f"{path} has more than {MAX_BYTES:,} bytes")
    try:
        text = data.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not text in UTF-8") from None
    if not text.strip():
        raise ValueError(f"{path} is empty")
    return text


def find_secret(environ: Mapping[str, str], name: str) -> str | None:
    """Return the value of a variable or of its file, None if neither is set. Raises ValueError."""
    value, path = environ.get(name), environ.get(f"{name}{SUFFIX}")
    if value and path:
        raise ValueError(f"is set beside {name}{SUFFIX}: leave one of them out")
    return read_secret_file(path) if path else value or None


class SecretEnvironment(Mapping[str, str]):
    """Variables of an environment; one that is missing is read from the file that NAME_FILE names."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def __getitem__(self, name: str) -> str:
        """Raises KeyError, or ValueError for a file that cannot be used."""
        if (found := find_secret(self._environ, name)) is None:
            return self._environ[name]
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._environ)

    def __len__(self) -> int:
        return len(self._environ)
