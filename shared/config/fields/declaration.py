"""Declarations of settings beside their type and default: tables, forms and processes that have them."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Literal

ProcessName = Literal["web", "bot", "worker"]
ALL: tuple[ProcessName, ...] = ("web", "bot", "worker")
"""All processes, for secrets that each of them needs."""

Table = Literal[
    "Model provider", "Storage and processes", "HTTP", "Telegram", "Context", "Agents and tools", "Spending",
    "Operators and alerts", "Logs, metrics and traces",
]  # fmt: skip
"""Headings of docs/settings.md; the table below each one has the rows of its settings."""

Section = Literal[
    "model", "telegram", "web", "voice", "speech", "pictures", "context", "recall", "tools", "caps", "people",
    "alerts", "backups",
]  # fmt: skip
"""Forms of the dashboard's page Settings; `web/static/dashboard/settings_fields.js` has their names."""

Container = Literal["variable", "fixed", "file", "absent"]
"""Source of a setting's value in docker-compose.yml: a variable of `.env`, a value that the file itself has,
a mounted secret, or none.

`absent` means that containers work without the setting.
"""


@dataclass(frozen=True, slots=True)
class FormRow:
    """Field of a form on the dashboard; a setting with one can be stored while Evertalk runs."""

    section: Section
    label: str
    help: str | None = None
    """Sentence below the field; None shows the description of the setting."""
    _: KW_ONLY
    provider: str = ""
    """Name that replaces `{provider}` in the label."""
    rare: bool = False
    """True if the field is folded under "More settings"."""
    after: str = ""
    """Field that this one follows in its form; empty keeps the order of declaration."""
    kind: Literal["", "models", "bots"] = ""
    """List of entries that the form edits one by one; empty derives the kind from the type."""
    choices: tuple[str, ...] = ()
    """Allowed values where the type does not name them."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """Places where a setting appears, and the processes that get its value."""

    table: Table
    _: KW_ONLY
    default: str = ""
    """Default as docs/settings.md says it; empty derives it from the field."""
    form: FormRow | None = None
    by_purpose: bool = False
    """True for a JSON object of secrets by purpose, which is stored with the entries of another setting."""
    sent_to: str = ""
    """Field with the address of a key's server; the key is sent nowhere else."""
    processes: tuple[ProcessName, ...] | None = None
    """Processes that get a secret setting, () for none; None for a plain setting, which all processes get."""
    container: Container = "variable"
    per_host: bool = False
    """True if hosts of one installation may differ in it."""
    of_policy: bool = False
    """True if the value overrides the field of the same name in the context policy."""

    @property
    def is_storable(self) -> bool:
        """True if operators can store the setting in the database, and so change it while Evertalk runs."""
        return self.form is not None or self.by_purpose
