"""Secrets are told by their looks, and what people want remembered is not taken for one."""

from __future__ import annotations

import pytest

from shared.core.values.secrets_filter import REDACTED, holds_secret, redact

A = "Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4z"
"""No key of anybody, only as long as one."""
SECRETS = [
    f"sk-ant-{A}", f"sk-proj-{A}", f"sk-{A}", f"sk_live_{A}", f"whsec_{A}", f"ghp_{A}", f"github_pat_{A}",
    f"glpat-{A}", f"xoxb-{A}", f"xapp-1-{A}", "AKIAABCDEFGHIJKLMNOP", f"AIza{A}xyz", f"ya29.{A}",
    f"GOCSPX-{A}",    f"npm_{A}", f"pypi-{A}", f"hf_{A}", f"gsk_{A}", f"xai-{A}", f"pplx-{A}", f"SG.{A}.{A}",
    f"eyJhbGciOiJIU.eyJzdWIiOiIx.{A}", f"123456789:{A}xyz", f"hooks.slack.com/services/T00/B00/{A}",
    f"discord.com/api/webhooks/123/{A}", "AGE-SECRET-KEY-1QQQQQQQQQQQQQQQQQQQQQQQQ",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----",
    "-----BEGIN PGP PRIVATE KEY BLOCK-----\nlQ\n-----END PGP PRIVATE KEY BLOCK-----",
    "4111 1111 1111 1111", f"pk_test_{A}", f"rk_live_{A}", f"sk-or-{A}", f"gho_{A}", f"ghu_{A}", f"ghs_{A}",
    f"ghr_{A}", f"xoxe-{A}", "ASIAABCDEFGHIJKLMNOP", f"glsa_{A}", f"ntn_{A}", f"AccountKey={A}Ab3dEf6hIj9k==",
    "dop_v1_0123456789abcdef0123456789abcdef01234567", "shpat_0123456789abcdef01234567",
    "shpca_0123456789abcdef01234567", f"discordapp.com/api/webhooks/123/{A}",
]  # fmt: skip
NAMED = [
    "password: hunter2!", "My password is hunter22", "Passwort: Geheim123", "Kennwort ist Geheim123",
    "contraseña: Secreta1", "mot de passe: Secret12", "пароль: qwerty12", "密码：abc12345",
    f"aws_secret_access_key = {A}", "api_key=abc123def", "https://ada:pa55word@example.org", f"Bearer {A}",
]  # fmt: skip
WANTED = [
    "My order number is 302-4410983-2291746.", "IBAN DE89 3704 0044 0532 0130 00", "Call +49 170 1234567.",
    "The door code is 4711.", "ISBN 978-3-16-148410-0", "Flight LH 400 on 2026-12-24 at 10:35",
    "Commit 4f2a91c0d3b7e8a6f5c4d3b2a190817263544536", "Invoice 2026-000123456789012",
    "The password policy is strict.", "A token of love is enough.", "The secret is to add salt.",
    "550e8400-e29b-41d4-a716-446655440000", "The key idea is recursion; sk-learn helps.",
]  # fmt: skip


@pytest.mark.control("S36")
@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_is_taken_out_and_the_words_around_it_stay(secret: str) -> None:
    shown = redact(f"Use {secret} please, Ada.")
    assert REDACTED in shown
    assert secret not in shown
    assert shown.startswith("Use ")
    assert redact(shown) == shown


@pytest.mark.control("S36")
@pytest.mark.parametrize("words", NAMED)
def test_what_is_called_a_secret_is_one(words: str) -> None:
    assert holds_secret(words)
    assert not holds_secret(redact(words))


@pytest.mark.parametrize("words", WANTED)
def test_what_people_want_remembered_stays(words: str) -> None:
    assert redact(words) == words
