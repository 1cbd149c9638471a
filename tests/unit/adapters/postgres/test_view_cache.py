"""What a process remembers of conversations stays within its bounds."""

from __future__ import annotations

from datetime import UTC, datetime

from shared.adapters.postgres.turns.view_cache import TOKENS_OF_AN_ENTRY, CachedView, ViewCache
from shared.core.session.session import Entry
from shared.core.values.messages import Text

AT = datetime(2026, 11, 23, tzinfo=UTC)


class Watch:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def view(version: int = 1, *, tokens: int = 10) -> CachedView:
    said = Entry(
        seq=1, turn=1, step=1, role="user", author="person", blocks=(Text(text="Hello"),), tokens=tokens,
        at=AT,
    )  # fmt: skip
    return CachedView(version=version, entries=(said,), turn_times=(AT,))


def test_what_is_kept_is_taken_once() -> None:
    views = ViewCache()
    views.keep(7, view())
    assert views.take(7) == view()
    assert views.take(7) is None


def test_a_newer_view_takes_the_place_of_the_older_one() -> None:
    views = ViewCache(most_tokens=2 * (10 + TOKENS_OF_AN_ENTRY))
    for version in range(5):
        views.keep(7, view(version))
    views.keep(8, view())
    assert (views.take(7), views.take(8)) == (view(4), view())


def test_those_that_were_kept_first_make_room() -> None:
    views = ViewCache(most_tokens=2 * (10 + TOKENS_OF_AN_ENTRY))
    for session_id in (1, 2, 3):
        views.keep(session_id, view())
    assert [views.take(session_id) for session_id in (1, 2, 3)] == [None, view(), view()]


def test_one_that_is_larger_than_all_the_room_is_not_kept() -> None:
    views = ViewCache(most_tokens=1_000)
    views.keep(1, view())
    views.keep(2, view(tokens=1_000))
    assert (views.take(1), views.take(2)) == (None, None)
    views.keep(3, view())
    assert views.take(3) == view()


def test_after_a_while_they_are_forgotten_taken_or_not() -> None:
    watch = Watch()
    views = ViewCache(seconds=600, now=watch)
    views.keep(1, view())
    watch.now = 500
    views.keep(2, view())
    watch.now = 700
    assert views.take(1) is None
    views.keep(3, view())
    watch.now = 1_101
    views.evict_old()
    assert list(views._kept) == [3]
    watch.now = 1_301
    views.evict_old()
    assert (list(views._kept), views._tokens) == ([], 0)
