"""Secrets from files: NAME_FILE names the file of NAME, as Docker and Kubernetes mount their secrets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

SUFFIX = "_FILE"
"""End of the name of a variable that names the file of a secret."""
MAX_BYTES = 65_536
"""Most bytes of such a file; the longest setting has 8,000 characters."""


def read_secret_file(path: str) -> str:
    """Return the text of a file without line breaks at its end.

    Raises ValueError if the file is missing, unreadable, empty, too large or not UTF-8; the message never
    contains the text.
    """
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
    """Return the value of a variable, else the text of the file that NAME_FILE names; None if neither is set.

    An empty variable counts as not set. Raises ValueError if both are set or the file cannot be used.
    """
    value, path = environ.get(name), environ.get(f"{name}{SUFFIX}")
    if value and path:
        raise ValueError(f"is set beside {name}{SUFFIX}: leave one of them out")
    return read_secret_file(path) if path else value or None


class SecretEnvironment(Mapping[str, str]):
    """Variables of an environment; a missing one is read from the file that NAME_FILE names.

    Iteration yields only the variables themselves.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def __getitem__(self, name: str) -> str:
        """Return the value of a variable or of its file. Raises KeyError, or ValueError for a file that
        cannot be used.
        """
        if (found := find_secret(self._environ, name)) is None:
            return self._environ[name]
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._environ)

    def __len__(self) -> int:
        return len(self._environ)
