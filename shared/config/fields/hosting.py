"""Settings of the place where Evertalk runs, and of who may reach it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import platformdirs
from pydantic import BaseModel, Field

from shared.config.fields.declaration import Declaration, FormRow
from shared.config.fields.kinds import AbsolutePath, Networks, Origins, Port, QuietHours, WebAddress, Zone


def default_data_dir() -> Path:
    """Return the user's data folder; for root `/var/lib/evertalk`, so that servers can run without root's
    rights.
    """
    if os.name == "posix" and os.geteuid() == 0:
        return Path("/var/lib/evertalk")
    return Path(platformdirs.user_data_dir("evertalk", appauthor=False))


class HostingSettings(BaseModel):
    """Settings of the place where Evertalk runs, of its address, time zone and profile."""

    data_dir: Annotated[
        AbsolutePath,
        Declaration("Storage and processes", default="user's data folder", per_host=True, container="fixed"),
    ] = Field(
        default_factory=default_data_dir,
        description="folder for the embedded servers, logs and the secret key",
    )
    servers_account: Annotated[str, Declaration("Storage and processes", container="absent")] = Field(
        default="evertalk-servers",
        pattern=r"^[a-z_][a-z0-9_-]{0,31}$",
        description=(
            "only if you start Evertalk as root: system account for the embedded servers; `up` "
            "creates it with `useradd` or `adduser`, and falls back to `nobody`"
        ),
    )
    http_host: Annotated[str, Declaration("HTTP", per_host=True, container="fixed")] = Field(
        default="127.0.0.1", description="address to listen on"
    )
    http_port: Annotated[Port, Declaration("HTTP", per_host=True, container="fixed")] = Field(
        default=8080, description="port to listen on; 0 picks a free port"
    )
    public_url: Annotated[WebAddress | None, Declaration("HTTP", default="local address")] = Field(
        default=None, description="public base URL for links, for example `https://chat.example.org`"
    )
    trusted_proxies: Annotated[Networks, Declaration("HTTP")] = Field(
        default=(), description="networks of proxies whose forwarding headers are trusted"
    )
    allowed_origins: Annotated[
        Origins,
        Declaration(
            "HTTP",
            form=FormRow("web", "Allowed origins", "Such as https://shop.example, separated by commas."),
        ),
    ] = Field(default=(), description="origins of pages that may embed the widget")
    profile: Annotated[Literal["personal", "public"], Declaration("HTTP")] = Field(
        default="personal",
        description="`personal` (you and people you know) or `public` (visitors of a website)",
    )
    timezone: Annotated[
        Zone,
        Declaration(
            "Agents and tools",
            form=FormRow(
                "caps",
                "Time zone",
                "Daily spending limits reset at midnight in this zone.",
                after="cap_visitor_per_day_usd",
            ),
        ),
    ] = Field(
        default="UTC",
        description=(
            "time zone in which a spending day ends at midnight, and the time zone of people whose "
            "own is unknown"
        ),
    )
    quiet_hours: Annotated[
        QuietHours, Declaration("Agents and tools", form=FormRow("people", "Quiet hours", rare=True))
    ] = Field(default="", description="hours without reminders in the person's own time, for example `22-8`")
