"""What guessers try first is refused as a password, what people make up is not."""

from __future__ import annotations

import pytest

from shared.core.identity.passwords import find_weakness


@pytest.mark.control("S09")
@pytest.mark.parametrize(
    "password",
    [
        "", "short", "elevenchars", "password1234", "Passw0rd2026!", "P@$$w0rd!!!!", "admin123admin123",
        "EvertalkEvertalk",
        "evertalk-2026", "123456789012", "abcdefghijkl", "aaaaaaaaaaaaaaaa", "qwertyuiop12",
        "geheim-geheim-1", "Ada.Lovelace1", "letmein-letmein", "changeme 2026", "            ", "x" * 1_001,
    ],
)  # fmt: skip
def test_what_is_guessed_first_is_refused_with_a_reason(password: str) -> None:
    assert find_weakness(password, name="Ada Lovelace").endswith(".")


@pytest.mark.parametrize(
    "password",
    [
        "correct horse battery", "another long password", "kB7#qv2!Lm0x", "drei gelbe Tassen",
        "пароль для меня", "密码很长而且没有人知道它",
    ],
)  # fmt: skip
def test_strong_password_is_accepted(password: str) -> None:
    assert find_weakness(password, name="Ada Lovelace") == ""
