"""Counts tokens with the bundled vocabulary or by simpler rules, and judges what a provider says of it."""

from __future__ import annotations

import base64
import hashlib
import json
import lzma
import threading
import unicodedata
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from shared.core.values.tokens import (
    chars_over_four,
    estimate_by_script,
    estimate_messages,
    estimate_system,
    estimate_tools,
)
from shared.core.values.ttl_cache import ttl_cache
from shared.ports import ModelRequest, Usage

if TYPE_CHECKING:
    import tiktoken


TOKENS_PER_CHAR = 4
"""More than any vocabulary makes of any script."""
SPARE_TOKENS = 20_000
"""What a provider puts around a request, and what a picture takes, at most."""
OUTPUT_FACTOR = 2
"""Not every server stops at exactly as many tokens as it was told."""


_BYTES_PER_TOKEN = 20
"""Bytes of a text per token that no vocabulary reaches on average; Hindi comes to ten."""
_LEAST_SHARE = 3


def is_possible(usage: Usage, request: ModelRequest, *, words: str) -> bool:
    """Of tools that the provider runs itself nobody knows what they read."""
    if any(tool.provider is not None for tool in request.tools):
        return True
    most_input = TOKENS_PER_CHAR * size_of(request, len) + SPARE_TOKENS * (1 + len(request.pictures))
    most_output = max(OUTPUT_FACTOR * request.max_output_tokens, TOKENS_PER_CHAR * len(words)) + SPARE_TOKENS
    return usage.context_tokens - usage.output_tokens <= most_input and usage.output_tokens <= most_output


def counts_too_little(
    usage: Usage, request: ModelRequest, *, words: str, count: Callable[[str], int]
) -> bool:
    """Return whether a provider's count is below a third of ours; such a count would open every cap.

    Vocabularies differ by less: some need half as many tokens for Hindi as the bundled one. Our own count
    is made only where the bytes of the request raise a doubt, since it takes time in each turn.
    """
    reported = usage.context_tokens - usage.output_tokens
    if reported * _BYTES_PER_TOKEN < size_of(request, _count_bytes):
        return reported * _LEAST_SHARE < size_of(request, count)
    if usage.output_tokens * _BYTES_PER_TOKEN < _count_bytes(words):
        return usage.output_tokens * _LEAST_SHARE < count(words)
    return False


def _count_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def size_of(request: ModelRequest, count: Callable[[str], int]) -> int:
    return (
        estimate_system(request.system, count)
        + estimate_messages(request.messages, count)
        + estimate_tools(request.tools, count)
    )


VOCABULARY = Path(__file__).parents[1] / "vocabulary" / "claude.json.xz"
SHA256 = "2e83a955f3ee147dfedae17d41aba74f3d8ee2dc3407e7a4acae676b829562fc"

_CHUNK_CHARS = 50_000
"""The encoder panics on a million equal blanks; at a fifth of that nothing was ever seen to fail."""
_REMEMBERED_TEXTS = 2_048
_REMEMBERED_CHARS = 4_000
"""Longer texts are counted again rather than kept in memory."""


class VocabularyUnusable(Exception):
    """The vocabulary file is missing, altered or cannot be read."""


class VocabularyCounter:
    """Loads the vocabulary at the first count (a tenth of a second, some 22 MB), not before."""

    def __init__(self, vocabulary: Path = VOCABULARY, *, sha256: str = SHA256) -> None:
        self._path = vocabulary
        self._sha256 = sha256
        self._lock = threading.Lock()
        self._encoding: tiktoken.Encoding | None = None
        self._broken: str | None = None
        self._remembered = ttl_cache(_REMEMBERED_TEXTS)(self._count)

    @property
    def problem(self) -> str | None:
        """Why the vocabulary is not used, for `doctor`; None while nothing is known to be wrong."""
        return self._broken

    def count_tokens(self, text: str) -> int:
        """Estimated tokens of a text before a model's factor; never raises."""
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
    """Raises `VocabularyUnusable`; asks no network."""
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
    """Once for a process, however many count in it: an encoding takes a tenth of a second and 22 MB."""
    import tiktoken

    raw: dict[str, object] = json.loads(lzma.decompress(packed))
    ranks: dict[bytes, int] = {}
    for line in str(raw["bpe_ranks"]).splitlines():
        _, first, *tokens = line.split(" ")
        ranks.update((base64.b64decode(token), rank) for rank, token in enumerate(tokens, int(first)))
    encoding = tiktoken.Encoding(
        "claude", pat_str=str(raw["pat_str"]), mergeable_ranks=ranks, special_tokens={}
    )
    # It has made its own tables of them, and would keep ours for what is not asked of it here.
    ranks.clear()
    return encoding


def _estimate_by_rule(text: str) -> int:
    try:
        return estimate_by_script(text)
    except MemoryError:
        return chars_over_four(text)
