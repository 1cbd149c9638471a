"""Which backups are kept, what a manifest says, and how one that was changed is told."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from shared.core.ops.backups import (
    DATABASE,
    FILES,
    BadBackup,
    Manifest,
    Member,
    check_seal,
    find_superfluous,
    is_due,
    name_of,
    parse_made_at,
    read_manifest,
    write_manifest,
)

NOW = datetime(2026, 11, 22, 9, 15, tzinfo=UTC)
DAY = timedelta(days=1)
KEY = b"k" * 48
SOUND = Manifest(
    made_at=NOW, evertalk="0.1.0", revision="0026", log_epoch=3, postgres="18.6", key_id="abc",
    members={DATABASE: Member(bytes=3, sha256="a" * 64), FILES: Member(bytes=0, sha256="b" * 64)},
    counts={"messages": 5},
)  # fmt: skip


def names(*days_ago: int) -> list[str]:
    return [name_of(NOW - days * DAY) for days in days_ago]


def test_a_name_tells_when_it_was_made_and_other_files_are_none() -> None:
    assert parse_made_at(name_of(NOW)) == NOW
    assert parse_made_at("erasures.jsonl") is None
    assert parse_made_at(name_of(NOW) + ".part") is None


def test_one_is_due_after_a_day_and_when_there_is_none() -> None:
    assert is_due([], now=NOW, every=DAY)
    assert is_due(names(1, 2), now=NOW, every=DAY)
    assert not is_due([name_of(NOW - timedelta(hours=23))], now=NOW, every=DAY)


def test_clock_that_was_ahead_does_not_stop_backups() -> None:
    assert is_due([*names(2), name_of(NOW + 300 * DAY)], now=NOW, every=DAY)


def test_the_oldest_go_and_the_one_just_made_stays() -> None:
    made = names(0, 1, 2, 3, 4, 5, 6, 7, 8)
    assert find_superfluous(made, keep=7, just_made=made[0], now=NOW) == [made[8], made[7]]
    assert find_superfluous(made[:3], keep=7, just_made=made[0], now=NOW) == []


def test_names_of_the_future_go_before_the_oldest() -> None:
    ahead = [name_of(NOW + days * DAY) for days in (200, 300)]
    made = names(0, 1, 2)
    assert find_superfluous([*ahead, *made], keep=3, just_made=made[0], now=NOW) == ahead


def test_manifest_reads_back_and_only_the_key_seals_it() -> None:
    data = write_manifest(SOUND, KEY)
    assert read_manifest(data) == SOUND
    assert check_seal(data, KEY)
    assert not check_seal(data, b"j" * 48)
    assert KEY.decode() not in data.decode()


def test_a_manifest_that_was_changed_has_another_seal() -> None:
    facts = json.loads(write_manifest(SOUND, KEY))
    facts["members"][DATABASE]["sha256"] = "c" * 64
    assert not check_seal(json.dumps(facts).encode(), KEY)
    del facts["seal"]
    assert not check_seal(json.dumps(facts).encode(), KEY)


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"members": {}},
        {"members": {"../../etc/passwd": {"bytes": 1, "sha256": "a" * 64}}},
        {"members": {DATABASE: {"bytes": -1, "sha256": "a" * 64}, FILES: {"bytes": 1, "sha256": "a" * 64}}},
        {"members": {DATABASE: {"bytes": 1, "sha256": "short"}, FILES: {"bytes": 1, "sha256": "a" * 64}}},
        {"made_at": "yesterday"},
        {"postgres": "newest"},
        {"revision": "'; DROP TABLE entries"},
        {"log_epoch": True},
        {"counts": None},
    ],
)
def test_what_no_evertalk_has_written_is_refused(change: dict[str, object]) -> None:
    facts = json.loads(write_manifest(SOUND, KEY)) | change
    with pytest.raises(BadBackup):
        read_manifest(json.dumps(facts).encode())


@pytest.mark.parametrize("data", [b"", b"[]", b"null", b"\xff\xfe", b"[" * 50_000])
def test_junk_is_no_manifest(data: bytes) -> None:
    with pytest.raises(BadBackup):
        read_manifest(data)
