"""The web channel for every test of this folder, as `tests.kit.web.fixtures` starts it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kit.answer_shapes import checked_answers
from tests.kit.web.fixtures import server, starter

__all__ = ["server", "starter"]


@pytest.fixture(autouse=True)
def answers_fit_their_schemas(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail each test whose requests got an answer with a missing or an undeclared field."""
    with checked_answers(monkeypatch) as differences:
        yield
    assert not differences, "\n".join(sorted(set(differences)))
