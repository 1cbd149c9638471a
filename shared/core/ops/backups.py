"""Backups: their manifest, which ones to keep, and how a damaged or foreign one is recognised."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from shared.core.values.errors import EvertalkError

FORMAT = 1
"""Version of the format of backups."""
MANIFEST = "manifest.json"
"""Name of the manifest in a backup."""
DATABASE = "database.dump"
"""Name of the dump of the database in a backup."""
FILES = "files.tar"
"""Name of the archive of the data folder's files in a backup."""
KEY = "secret_key"
"""Name of the secret key in a backup; it may be missing."""
MEMBERS = (DATABASE, FILES, KEY)
"""Names of all files that a backup may contain besides its manifest."""
MOST_MANIFEST_BYTES = 64 * 1024
"""Most bytes of a manifest that are read."""
_NAME = re.compile(r"evertalk-(\d{8}T\d{6})Z\.tar")
_STAMP = "%Y%m%dT%H%M%S"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_REVISION = re.compile(r"[0-9A-Za-z_]{1,40}")


class BadBackup(EvertalkError):
    """Backup that cannot be restored; nothing was changed."""

    sentence = "The backup cannot be restored; nothing was changed."
    code = "bad_backup"
    advice = "Take another one: ./evertalk backup --list shows those of this machine."


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """File of a backup, with its size in bytes and its SHA-256 in hex."""

    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Description of a backup: its files with checksums, and the versions that made it.

    `counts` has the numbers of conversations, messages, notes and files. `key_id` identifies the secret key
    without revealing it. `floor` is the oldest schema that the program which made the backup can upgrade;
    empty before 0.2.0.
    """

    made_at: datetime
    evertalk: str
    revision: str
    log_epoch: int
    postgres: str
    key_id: str
    members: Mapping[str, Member]
    counts: Mapping[str, int]
    floor: str = ""

    def describe_schema(self) -> str:
        """Return an English text with schema and version of the backup, and `floor` if it is known."""
        since = f", which upgrades data from schema {self.floor} on" if self.floor else ""
        return f"schema {self.revision}, made by Evertalk {self.evertalk}{since}"

    @property
    def postgres_major(self) -> int:
        """Major version of Postgres, such as 16."""
        return int(self.postgres.partition(".")[0])


def name_of(made_at: datetime) -> str:
    """Return the file name of a backup made at this time, such as `evertalk-20261120T140500Z.tar`, in UTC."""
    return f"evertalk-{made_at.astimezone(UTC).strftime(_STAMP)}Z.tar"


def parse_made_at(name: str) -> datetime | None:
    """Return the time, in UTC, in a backup's file name; None for the name of another file."""
    found = _NAME.fullmatch(name)
    return None if found is None else datetime.strptime(found[1], _STAMP).replace(tzinfo=UTC)


def newest(names: Iterable[str], *, now: datetime) -> datetime | None:
    """Return the time of the newest backup among these file names; None if there is none.

    Times more than five minutes after `now` are ignored, since the clock was wrong when they were made.
    """
    times = [
        at for name in names if (at := parse_made_at(name)) is not None and at <= now + timedelta(minutes=5)
    ]
    return max(times, default=None)


def is_due(names: Iterable[str], *, now: datetime, every: timedelta) -> bool:
    """Return whether the newest backup is at least `every` old, or none exists."""
    last = newest(names, now=now)
    return last is None or now - last >= every


def find_superfluous(names: Iterable[str], *, keep: int, just_made: str, now: datetime) -> list[str]:
    """Return the names of backups to delete once `just_made` is stored, so that at most `keep` remain with
    it.

    Backups dated after `now` come first, then the oldest. `just_made` and other files are never returned.
    """
    dated = [(at, name) for name in names if (at := parse_made_at(name)) is not None and name != just_made]
    dated.sort(key=lambda one: (one[0] <= now, one[0]))
    return [name for _, name in dated[: max(0, len(dated) - max(0, keep - 1))]]


def write_manifest(manifest: Manifest, secret_key: bytes) -> bytes:
    """Return the manifest as JSON in UTF-8, with a seal: an HMAC by the secret key. Nothing is written."""
    facts: dict[str, Any] = {
        "format": FORMAT,
        "made_at": manifest.made_at.astimezone(UTC).isoformat(),
        "evertalk": manifest.evertalk,
        "revision": manifest.revision,
        "floor": manifest.floor,
        "log_epoch": manifest.log_epoch,
        "postgres": manifest.postgres,
        "key_id": manifest.key_id,
        "members": {
            name: {"bytes": one.bytes, "sha256": one.sha256} for name, one in manifest.members.items()
        },
        "counts": dict(manifest.counts),
    }
    return json.dumps({**facts, "seal": _seal(facts, secret_key)}, indent=1).encode()


def read_manifest(data: bytes) -> Manifest:
    """Return the manifest in this JSON, without checking its seal or the files.

    Raises BadBackup if it cannot be read, has another format, or names other files than a backup has.
    """
    try:
        told = json.loads(data)
        if told["format"] != FORMAT:
            raise BadBackup(
                f"it has format {told['format']!r}, this Evertalk reads {FORMAT}",
                advice="Restore it with the Evertalk that made it, or a newer one.",
            )
        members = {name: Member(bytes=_size(one["bytes"]), sha256=str(one["sha256"]))
                   for name, one in told["members"].items()}  # fmt: skip
        manifest = Manifest(
            made_at=datetime.fromisoformat(told["made_at"]).astimezone(UTC),
            evertalk=str(told["evertalk"])[:40],
            revision=str(told["revision"]),
            log_epoch=_size(told["log_epoch"]),
            postgres=str(told["postgres"])[:20],
            key_id=str(told["key_id"]),
            members=members,
            counts={str(name): _size(number) for name, number in told["counts"].items()},
            floor=str(told.get("floor", "")),
        )
        sound = manifest.postgres_major > 0 and all(
            _REVISION.fullmatch(one) for one in (manifest.revision, manifest.floor or manifest.revision)
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadBackup("its manifest cannot be read") from error
    if not sound or not {DATABASE, FILES} <= set(members) <= set(MEMBERS):
        raise BadBackup("its manifest names other parts than a backup has")
    if not all(_DIGEST.fullmatch(one.sha256) for one in members.values()):
        raise BadBackup("its manifest has no checksums")
    return manifest


def check_seal(data: bytes, secret_key: bytes) -> bool:
    """Return whether the seal of a manifest that `read_manifest` accepts was made with this secret key."""
    facts = json.loads(data)
    given = facts.pop("seal", "")
    return isinstance(given, str) and hmac.compare_digest(given.encode(), _seal(facts, secret_key).encode())


def key_id_of(secret_key: bytes) -> str:
    """Return 12 hexadecimal digits that identify the secret key without revealing it."""
    return hashlib.sha256(b"evertalk.backup.key-id" + secret_key).hexdigest()[:12]


def _seal(facts: Mapping[str, Any], secret_key: bytes) -> str:
    key = hashlib.sha256(b"evertalk.backup.seal" + secret_key).digest()
    told = json.dumps(facts, sort_keys=True, separators=(",", ":")).encode()
    return hmac.new(key, told, hashlib.sha256).hexdigest()


def _size(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("no size")
    return value
