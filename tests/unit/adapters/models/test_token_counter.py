"""The bundled vocabulary: checked, loaded late, never failing, with a ladder below it."""

from __future__ import annotations

import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest

from shared.adapters.models.token_counter import (
    SHA256,
    VOCABULARY,
    VocabularyCounter,
    VocabularyUnusable,
    load_vocabulary,
)
from shared.core.values.tokens import estimate_by_script

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture(scope="module")
def counter() -> VocabularyCounter:
    return VocabularyCounter()


@pytest.mark.parametrize(
    ("text", "tokens"), [("", 0), ("hello world", 2), ("hello world! how are you?", 7), ("𝔥ello", 1)]
)
def test_known_texts_have_known_counts(counter: VocabularyCounter, text: str, tokens: int) -> None:
    assert counter.count_tokens(text) == tokens
    assert counter.problem is None


def test_the_special_words_of_a_model_are_ordinary_text(counter: VocabularyCounter) -> None:
    assert counter.count_tokens("<EOT> <|endoftext|> <META>") > 5


def test_texts_are_normalised_before_they_are_counted(counter: VocabularyCounter) -> None:
    decomposed = unicodedata.normalize("NFD", "größere Äpfel")
    assert counter.count_tokens(decomposed) == counter.count_tokens("größere Äpfel")


@pytest.mark.parametrize("text", [" " * 1_200_000, "\n" * 300_000, "x" * 300_000, "\ud800 lone", "\0" * 10])
def test_hostile_texts_are_counted_too(counter: VocabularyCounter, text: str) -> None:
    assert counter.count_tokens(text) > 0


def test_the_rule_by_script_is_near_the_vocabulary(counter: VocabularyCounter) -> None:
    texts = (
        "The meeting was moved to Thursday because two of the engineers were ill.",
        "Вчера мы ходили в театр и смотрели новую постановку по пьесе Чехова.",
        "昨天我们去了剧院看了一部新戏。我非常喜欢，你觉得怎么样？",
        '{"id": 17, "name": "lamp", "price": 12.5, "tags": ["home", "light"]}',
    )
    for text in texts:
        assert 0.7 < estimate_by_script(text) / counter.count_tokens(text) < 1.5


def test_nothing_is_loaded_before_the_first_count() -> None:
    fresh = VocabularyCounter()
    assert fresh._encoding is None
    fresh.count_tokens("x")
    assert fresh._encoding is not None


def test_a_process_holds_the_vocabulary_once() -> None:
    assert load_vocabulary(VOCABULARY, sha256=SHA256) is load_vocabulary(VOCABULARY, sha256=SHA256)


def test_the_encoder_holds_the_vocabulary_and_python_does_not() -> None:
    """Sixty-five thousand words: 7 MB as a mapping of Python's."""
    program = (
        "import tracemalloc, tiktoken\n"
        "from shared.adapters.models.token_counter import VocabularyCounter\n"
        "tracemalloc.start()\n"
        "assert VocabularyCounter().count_tokens('hello world') == 2\n"
        "print(tracemalloc.get_traced_memory()[0])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert int(done.stdout) < 1_000_000


@pytest.mark.control("S45")
def test_an_altered_file_is_refused_and_the_rule_takes_over(tmp_path: Path) -> None:
    altered = tmp_path / "claude.json.xz"
    altered.write_bytes(VOCABULARY.read_bytes() + b"\0")
    with pytest.raises(VocabularyUnusable, match="checksum"):
        load_vocabulary(altered, sha256=SHA256)
    counter = VocabularyCounter(altered)
    assert counter.count_tokens("hello there") == estimate_by_script("hello there")
    assert counter.problem is not None
    assert "checksum" in counter.problem


@pytest.mark.control("S45")
def test_a_missing_file_is_no_failure(tmp_path: Path) -> None:
    assert VocabularyCounter(tmp_path / "none").count_tokens("hello") == estimate_by_script("hello")
