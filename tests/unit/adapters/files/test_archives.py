"""Archives read back as they were written, and whatever was done to one since is noticed."""

from __future__ import annotations

import io
import tarfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from shared.adapters.files.archive import (
    compute_digest,
    find_folder_problem,
    finish_archive,
    open_archive,
    pack_folder,
    unpack,
    unpack_folder,
    write_archive,
)
from shared.adapters.files.erasure_file import FILE, KEPT, ErasureFile
from shared.core.ops.backups import DATABASE, FILES, MANIFEST, BadBackup, Manifest, write_manifest
from shared.core.privacy.erasures import Erased

KEY = b"k" * 48
NOW = datetime(2026, 11, 22, 9, 15, tzinfo=UTC)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    (tmp_path / DATABASE).write_bytes(b"rows" * 50_000)
    (tmp_path / "workspaces" / "ada" / "knowledge").mkdir(parents=True)
    (tmp_path / "workspaces" / "ada" / "SOUL.md").write_text("Be kind.")
    (tmp_path / "workspaces" / "ada" / "knowledge" / "prices.md").write_text("One euro.")
    (tmp_path / "workspaces" / "outside").symlink_to("/etc/passwd")
    number, left_out = pack_folder(tmp_path, ("workspaces", "mcp.json"), tmp_path / FILES)
    assert (number, left_out) == (2, ["workspaces/outside"])
    parts = {name: tmp_path / name for name in (DATABASE, FILES)}
    manifest = Manifest(
        made_at=NOW, evertalk="0.1.0", revision="0026", log_epoch=1, postgres="18.6", key_id="abc", counts={},
        members={name: compute_digest(path) for name, path in parts.items()},
    )  # fmt: skip
    target = tmp_path / "whole.tar"
    finish_archive(write_archive(target, write_manifest(manifest, KEY), parts), target)
    return target


def test_archive_reads_back_and_is_private(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    unpack(archive, tmp_path / "out")
    assert (tmp_path / "out" / DATABASE).read_bytes() == b"rows" * 50_000
    assert unpack_folder(tmp_path / "out" / FILES, tmp_path / "again") == 2
    assert (tmp_path / "again" / "workspaces" / "ada" / "knowledge" / "prices.md").read_text() == "One euro."
    assert archive.stat().st_mode & 0o777 == 0o600
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize("place", [0.02, 0.3, 0.6, 0.9])
def test_a_changed_byte_is_noticed_wherever_it_is(archive: Path, place: float) -> None:
    data = bytearray(archive.read_bytes())
    data[int(len(data) * place)] ^= 0xFF
    archive.write_bytes(data)
    with pytest.raises(BadBackup):
        unpack(archive, None)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.9])
def test_a_cut_off_archive_is_noticed(archive: Path, share: float) -> None:
    data = archive.read_bytes()
    archive.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(BadBackup):
        unpack(archive, None)


def test_more_than_the_manifest_names_is_refused(archive: Path) -> None:
    with tarfile.open(archive, mode="a") as tar:
        about = tarfile.TarInfo("../../evil")
        about.size = 4
        tar.addfile(about, io.BytesIO(b"evil"))
    with pytest.raises(BadBackup, match="does not name"):
        unpack(archive, None)


@pytest.mark.parametrize("name", ["/etc/cron.d/evil", "../evil", "workspaces/../../evil", "a\\..\\evil"])
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    made = tmp_path / "files.tar"
    with tarfile.open(made, mode="w") as tar:
        about = tarfile.TarInfo(name)
        about.size = 4
        tar.addfile(about, io.BytesIO(b"evil"))
    (tmp_path / "out").mkdir()
    with pytest.raises(BadBackup, match="may not be"):
        unpack_folder(made, tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())


def test_a_link_in_an_archive_is_refused(tmp_path: Path) -> None:
    made = tmp_path / "files.tar"
    with tarfile.open(made, mode="w") as tar:
        about = tarfile.TarInfo("workspaces")
        about.type, about.linkname = tarfile.SYMTYPE, "/etc"
        tar.addfile(about)
    with pytest.raises(BadBackup, match="may not be"):
        unpack_folder(made, tmp_path / "out")


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04" * 400, b"\x1f\x8b" + b"\0" * 2000, b"x" * 600])
def test_another_kind_of_file_is_no_backup(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "other").write_bytes(data)
    with pytest.raises(BadBackup):
        open_archive(tmp_path / "other")


def test_an_archive_without_a_manifest_is_none(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "other.tar", mode="w") as tar:
        about = tarfile.TarInfo(f"x{MANIFEST}")
        tar.addfile(about, io.BytesIO(b""))
    with pytest.raises(BadBackup, match="no backup of Evertalk"):
        open_archive(tmp_path / "other.tar")


def erased(number: int, at: datetime = NOW) -> Erased:
    return Erased(
        at=at, contact=bytes([number]) * 32, scope="messages", about={"session": "s", "seqs": [number]}
    )


def test_the_log_of_erasures_takes_each_line_once(tmp_path: Path) -> None:
    file = ErasureFile(tmp_path / FILE)
    assert file.add([erased(1), erased(2)]) == 2
    assert file.add([erased(2), erased(3)]) == 1
    assert file.read() == [erased(1), erased(2), erased(3)]
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600


def test_a_line_torn_by_a_power_cut_costs_no_other_line(tmp_path: Path) -> None:
    file = ErasureFile(tmp_path / FILE)
    file.add([erased(1)])
    with (tmp_path / FILE).open("ab") as torn:
        torn.write(b'{"at": "2026-11-2')
    file.add([erased(2)])
    assert file.read() == [erased(1), erased(2)]


def test_what_is_older_than_the_databases_own_log_goes(tmp_path: Path) -> None:
    file = ErasureFile(tmp_path / FILE)
    file.add([erased(1, NOW - KEPT * 1.01), erased(2)])
    file.discard_old(now=NOW)
    assert file.read() == [erased(2)]


def test_folder_for_copies_is_judged_wherever_it_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_folder_problem(tmp_path) is None
    assert find_folder_problem(tmp_path / "absent") == "missing"

    def refuse(_: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_dir", refuse)
    assert find_folder_problem(tmp_path / "closed" / "copies") == "denied"
