"""Settings of handover to humans, backups and retention."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from shared.config.fields.declaration import Declaration, FormRow
from shared.config.fields.kinds import AbsolutePath, CopyFolder, WorkingHours


class PeopleSettings(BaseModel):
    """Settings of handover to operators, backups and retention."""

    handover: Annotated[
        Literal["off", "on"] | None,
        Declaration(
            "Agents and tools",
            default="as the profile",
            form=FormRow("people", "Ask for a human", "Lets people and the assistant ask for an operator."),
        ),
    ] = Field(
        default=None,
        description="`on` lets people and the assistant ask for a human; off in the profile `personal`",
    )
    handover_minutes: Annotated[
        float,
        Declaration(
            "Agents and tools", form=FormRow("people", "Return if no operator comes (minutes)", rare=True)
        ),
    ] = Field(
        default=10,
        gt=0,
        le=10_080,
        description="minutes that a person waits for an operator before the assistant continues",
    )
    handover_silence_minutes: Annotated[
        float,
        Declaration(
            "Agents and tools", form=FormRow("people", "Return after operator silence (minutes)", rare=True)
        ),
    ] = Field(
        default=60,
        gt=0,
        le=10_080,
        description=(
            "minutes without an operator's reply to a waiting person before the assistant continues"
        ),
    )
    working_hours: Annotated[
        WorkingHours,
        Declaration(
            "Agents and tools",
            default="any time",
            form=FormRow("people", "Working hours", "Such as Mo-Fr 9-17:30; at any time if empty."),
        ),
    ] = Field(
        default="",
        description=(
            "days and hours in which humans answer, for example `Mo-Fr 9-17:30, Sa 10-14 "
            "Europe/Berlin`; without a zone, that of `EVERTALK_TIMEZONE`"
        ),
    )
    away_text: Annotated[
        str,
        Declaration(
            "Agents and tools",
            default="words in the person's language",
            form=FormRow("people", "Message outside working hours", rare=True),
        ),
    ] = Field(
        default="",
        max_length=500,
        description="the reply to a person who asks for a human outside those hours",
    )

    # Copies of everything: how many are kept (0: none is made by itself), and where.
    backup_keep: Annotated[int, Declaration("Storage and processes", per_host=True)] = Field(
        default=7,
        ge=0,
        le=365,
        description=(
            "number of daily backups to keep; 0 turns off automatic backups, including the one before"
            " a schema change"
        ),
    )
    backup_dir: Annotated[
        AbsolutePath | None,
        Declaration(
            "Storage and processes", default="`backups` in the data folder", per_host=True, container="absent"
        ),
    ] = Field(default=None, description="folder for backups and the erasure log")
    backup_copy_dir: Annotated[
        CopyFolder | None,
        Declaration(
            "Storage and processes",
            per_host=True,
            form=FormRow(
                "backups", "Folder for copies", "Mount point of another disk or share, such as /mnt/backups."
            ),
        ),
    ] = Field(
        default=None,
        description=(
            "folder on another disk or a mounted share, to which [each backup is "
            "copied](data.md#copies-elsewhere), with the erasure log"
        ),
    )

    # How long conversations are kept; None means until they are forgotten.
    retention_days: Annotated[
        int | None,
        Declaration(
            "Storage and processes",
            form=FormRow(
                "people", "Erase conversations after (days)", "Counted from the last message; never if empty."
            ),
        ),
    ] = Field(
        default=None,
        ge=1,
        le=36500,
        description=(
            "days after its last message until a conversation is erased; by default a conversation is"
            " kept until its contact erases it"
        ),
    )
