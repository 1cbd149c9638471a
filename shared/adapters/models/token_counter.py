"""Counting of tokens with the bundled vocabulary, or by simple rules if that fails."""

from __future__ import annotations

import base64
import hashlib
import json
import lzma
import threading
import unicodedata
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from shared.core.values.tokens import chars_over_four, estimate_by_script
from shared.core.values.ttl_cache import ttl_cache

if TYPE_CHECKING:
    import tiktoken


VOCABULARY = Path(__file__).parents[1] / "vocabulary" / "claude.json.xz"
"""Path of the bundled vocabulary file, compressed with xz."""
SHA256 = "2e83a955f3ee147dfedae17d41aba74f3d8ee2dc3407e7a4acae676b829562fc"
"""Checksum of the bundled vocabulary file, in hexadecimal digits."""

_CHUNK_CHARS = 50_000
"""Maximum characters that are encoded at once; the encoder panics on a million equal blanks."""
_REMEMBERED_TEXTS = 2_048
_REMEMBERED_CHARS = 4_000
"""Maximum characters of a text whose count is cached."""


class VocabularyUnusable(Exception):
    """Raised for a vocabulary file that is missing, altered or cannot be read."""


class VocabularyCounter:
    """Counter with the bundled vocabulary, which the first count loads (0.1 seconds, 22 MB)."""

    def __init__(self, vocabulary: Path = VOCABULARY, *, sha256: str = SHA256) -> None:
        self._path = vocabulary
        self._sha256 = sha256
        self._lock = threading.Lock()
        self._encoding: tiktoken.Encoding | None = None
        self._broken: str | None = None
        self._remembered = ttl_cache(_REMEMBERED_TEXTS)(self._count)

    @property
    def problem(self) -> str | None:
        """Reason why the vocabulary is not used, for `doctor`; None if it works or was not loaded yet."""
        return self._broken

    def count_tokens(self, text: str) -> int:
        """Return the estimated tokens of a text, before a model's factor; raises nothing."""
        return self._remembered(text) if len(text) <= _REMEMBERED_CHARS else self._count(text)

    def _count(self, text: str) -> int:
        try:
            return self._count_by_vocabulary(text)
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException:  # noqa: BLE001  a panic of the encoder is no Exception
            return _estimate_by_rule(text)

    def _count_by_vocabulary(self, text: str) -> int:
        encoding = self._get_encoding()
        if encoding is None:
            return _estimate_by_rule(text)
        plain = unicodedata.normalize("NFKC", text)
        chunks = (plain[at : at + _CHUNK_CHARS] for at in range(0, len(plain), _CHUNK_CHARS))
        return sum(len(encoding.encode_ordinary(chunk)) for chunk in chunks)

    def _get_encoding(self) -> tiktoken.Encoding | None:
        with self._lock:
            if self._encoding is None and self._broken is None:
                try:
                    self._encoding = load_vocabulary(self._path, sha256=self._sha256)
                except VocabularyUnusable as error:
                    self._broken = str(error)
            return self._encoding


def load_vocabulary(path: Path, *, sha256: str) -> tiktoken.Encoding:
    """Return the encoding of a vocabulary file.

    Raises VocabularyUnusable if it is missing or its checksum differs.
    """
    try:
        packed = path.read_bytes()
    except OSError as error:
        raise VocabularyUnusable(f"{path.name} cannot be read: {error}") from error
    if hashlib.sha256(packed).hexdigest() != sha256:
        raise VocabularyUnusable(f"{path.name} is not the file that was bundled (checksum differs)")
    try:
        return _load_encoding(packed)
    except (ImportError, ValueError, KeyError, lzma.LZMAError) as error:
        raise VocabularyUnusable(f"{path.name} cannot be used: {error}") from error


@lru_cache(maxsize=1)
def _load_encoding(packed: bytes) -> tiktoken.Encoding:
    """Return the encoding of packed vocabulary data, created once per process."""
    import tiktoken

    raw: dict[str, object] = json.loads(lzma.decompress(packed))
    ranks: dict[bytes, int] = {}
    for line in str(raw["bpe_ranks"]).splitlines():
        _, first, *tokens = line.split(" ")
        ranks.update((base64.b64decode(token), rank) for rank, token in enumerate(tokens, int(first)))
    encoding = tiktoken.Encoding(
        "claude", pat_str=str(raw["pat_str"]), mergeable_ranks=ranks, special_tokens={}
    )
    # The encoding has its own copy of the ranks.
    ranks.clear()
    return encoding


def _estimate_by_rule(text: str) -> int:
    try:
        return estimate_by_script(text)
    except MemoryError:
        return chars_over_four(text)
