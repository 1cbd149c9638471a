"""Writes what is derived from the declarations of settings: `python -m tests.kit.settings_pages`.

The tables of docs/settings.md, the variables of docker-compose.yml and the rows of the dashboard's forms come
from `shared/config/fields`. Run `npm run build` afterwards, which packs the forms for browsers.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import get_args

from shared.config.fields.declaration import FormRow, ProcessName, Section, Table
from shared.config.settings import (
    Settings,
    describe_default,
    is_secret,
    list_declarations,
    list_setting_names,
)

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "settings.md"
COMPOSE = ROOT / "docker-compose.yml"
FORM = ROOT / "web" / "static" / "dashboard" / "form_fields.js"
COMMAND = "python -m tests.kit.settings_pages"
BEGIN = f"  # `{COMMAND}` writes what follows. A name without a value is filled from .env, or stays unset."
END = "# Here ends what is written from the settings."
_COMPANIES = ("Anthropic", "OpenAI")
"""Providers in labels whose names are not translated."""
_FORM_HEAD = f"""\
/** Rows of the forms of settings. `{COMMAND}` writes this file from shared/config/fields. */
import {{ t }} from "./i18n.js";

/**
 * A setting, its label, and one sentence of help; `rare` ones are folded, with the help of the documentation.
 * @typedef {{[name: string, label: string, help?: string]}} Field
 */
/** @type {{Record<string, {{fields: Field[], rare?: Field[]}}>}} */
export const FIELDS = {{
"""


def render_page(page: str) -> str:
    """Return docs/settings.md with new rows in its tables. Raises ValueError if a table is missing."""
    sections = page.split("\n## ")
    places = {section.partition("\n")[0]: place for place, section in enumerate(sections)}
    for table in get_args(Table):
        place = places.get(table, 0)
        head, line, rest = sections[place].partition("|---|---|---|\n")
        if not line:
            raise ValueError(f"{PAGE.name} has no table below the heading {table}")
        tail = itertools.dropwhile(lambda row: row.startswith("|"), rest.splitlines(keepends=True))
        sections[place] = "".join([head, line, *_list_rows(table), *tail])
    return "\n## ".join(sections)


def _list_rows(table: str) -> Iterator[str]:
    names = list_setting_names()
    for field, declared in list_declarations().items():
        if declared.table == table:
            meaning = Settings.model_fields[field].description
            yield f"| `{names[field]}` | {describe_default(field)} | {meaning} |\n"


def render_compose(text: str) -> str:
    """Return docker-compose.yml with new lists of variables. Raises ValueError if a mark is missing."""
    head, begin, rest = text.partition(f"{BEGIN}\n")
    _, end, tail = rest.partition(f"{END}\n")
    if not begin or not end:
        raise ValueError(f"{COMPOSE.name} does not say where the settings begin and end")
    declarations = list_declarations()
    plain = [name for field, name in _list_variables() if not is_secret(field)]
    blocks = [*_list_lines(plain), ""]
    for processes in _list_groups():
        anchor = f"secrets-{'-'.join(processes)}"
        names = [name for field, name in _list_variables() if declarations[field].processes == processes]
        blocks += [f"x-{anchor}: &{anchor}", *_list_lines(names), ""]
    return head + begin + "\n".join(blocks) + end + tail


def _list_variables() -> Iterator[tuple[str, str]]:
    """Yield field and name of each setting that a container is given from `.env`."""
    declarations = list_declarations()
    return (
        (field, name)
        for field, name in list_setting_names().items()
        if declarations[field].container == "variable" and declarations[field].processes != ()
    )


def _list_groups() -> Sequence[tuple[ProcessName, ...]]:
    """Return the sets of processes that share secrets, the largest first."""
    found = dict.fromkeys(list_declarations()[field].processes for field, _ in _list_variables())
    return sorted((group for group in found if group), key=lambda group: (-len(group), group))


def _list_lines(names: Sequence[str]) -> list[str]:
    return [f"  {name}:" for name in names]


def render_form() -> str:
    """Return the script with the rows of the forms."""
    sections = "".join(
        f"  {section}: {{ fields: [{_render_rows(section, rare=False)}]"
        + (f", rare: [{rare}]" if (rare := _render_rows(section, rare=True)) else "")
        + " },\n"
        for section in get_args(Section)
    )
    return f"{_FORM_HEAD}{sections}}};\n"


def _render_rows(section: str, *, rare: bool) -> str:
    return ",".join(f"\n    {_render_row(name, row)}" for name, row in _order_rows(section, rare=rare))


def _order_rows(section: str, *, rare: bool) -> list[tuple[str, FormRow]]:
    """Return variables and rows of a form in the order of declaration, those with `after` moved."""
    declared = {field: one.form for field, one in list_declarations().items() if one.form is not None}
    fields = [field for field, row in declared.items() if (row.section, row.rare) == (section, rare)]
    for field in [field for field in fields if declared[field].after]:
        fields.remove(field)
        fields.insert(fields.index(declared[field].after) + 1, field)
    names = list_setting_names()
    return [(names[field], declared[field]) for field in fields]


def _render_row(name: str, row: FormRow) -> str:
    texts = [_render_label(row), *([] if row.help is None else [f"t({_quote(row.help)})"])]
    return f"[{_quote(name)}, {', '.join(texts)}]"


def _render_label(row: FormRow) -> str:
    if not row.provider:
        return f"t({_quote(row.label)})"
    name = _quote(row.provider)
    return f"t({_quote(row.label)}, {{ provider: {name if row.provider in _COMPANIES else f't({name})'} }})"


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def render_all() -> dict[Path, str]:
    """Return the whole text of each written file."""
    return {
        PAGE: render_page(PAGE.read_text("utf-8")),
        COMPOSE: render_compose(COMPOSE.read_text("utf-8")),
        FORM: render_form(),
    }


if __name__ == "__main__":
    for path, text in render_all().items():
        path.write_text(text, "utf-8")
