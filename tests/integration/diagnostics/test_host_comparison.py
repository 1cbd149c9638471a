"""Two hosts that are not set up alike are told apart, by marks that tell nobody what they stand for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shared.bootstrap.host_fingerprint import REFRESH_SECONDS, HostFingerprint
from shared.config.settings import load_settings
from shared.diagnostics.server_checks import check_hosts, compare_hosts
from tests.kit.app_driver import health_told, running_app, settings_for

KEY = "k" * 48
CANARY = "sk-canary-77aa"


def marks(folder: Path, *, key: str = KEY, clock: Any = lambda: 0.0, **more: Any) -> HostFingerprint:
    settings = load_settings(data_dir=folder, secret_key=key, **more)
    return HostFingerprint(settings, key.encode(), folder / "workspaces", clock=clock)


def host(folder: Path, *, soul: str = "As ever.") -> Path:
    (folder / "workspaces" / "ada").mkdir(parents=True)
    (folder / "workspaces" / "ada" / "SOUL.md").write_text(soul)
    return folder


def said(*hosts: Mapping[str, Any]) -> str:
    return "\n".join(map(str, compare_hosts({"web": {told["place"]: told for told in hosts}})))


def test_what_differs_is_named(tmp_path: Path) -> None:
    here, there = host(tmp_path / "a"), host(tmp_path / "b")
    assert said(marks(here)()) == ""
    assert "2 hosts with the same setup" in said(marks(here)(), marks(there, http_port=9)())
    (there / "mcp.json").write_text("{}")
    (there / "workspaces" / "ada" / "SOUL.md").write_text("Another one.")
    told = said(marks(here)(), marks(there, trusted_proxies="10.0.0.0/8", anthropic_api_key=CANARY)())
    for word in ("mcp.json", "workspaces/ada", "EVERTALK_TRUSTED_PROXIES", "ANTHROPIC_API_KEY", str(there)):
        assert word in told
    assert CANARY not in json.dumps(marks(there, anthropic_api_key=CANARY)())
    assert "different secret keys" in said(marks(here)(), marks(there, key="j" * 48)())


def test_files_are_looked_at_again_now_and_then(tmp_path: Path) -> None:
    now = [0.0]
    look = marks(host(tmp_path), clock=lambda: now[0])
    before = look()["files"]
    (tmp_path / "workspaces" / "ada" / "SOUL.md").write_text("Edited.")
    assert look()["files"] == before
    now[0] += REFRESH_SECONDS
    assert look()["files"] != before


async def test_living_processes_tell_doctor_of_their_hosts(
    database_url: str, redis_url: str, tmp_path: Path
) -> None:
    here, there = host(tmp_path / "a"), host(tmp_path / "b", soul="Another one.")
    of = {
        folder: settings_for(database_url, redis_url, data_dir=folder, secret_key=KEY)
        for folder in (here, there)
    }
    async with running_app(of[here]) as one:
        await health_told(one)
        assert await check_hosts(of[here], database_url) == []
        async with running_app(of[there]) as other:
            await health_told(other)
            (finding,) = await check_hosts(of[here], database_url)
    assert finding.level == "warn"
    assert "workspaces/ada" in finding.what
