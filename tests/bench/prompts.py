"""What our own sentences cost in every request: `python -m tests.bench.prompts [--json] [--show KIND …]`.

Counted by the bundled vocabulary, before a model's factor. `--show` prints the words themselves.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import get_args

from shared.adapters.models.token_counter import VocabularyCounter
from shared.bootstrap.from_settings import BUILT_IN_TOOLS
from shared.core.compaction.note_requests import note_rules
from shared.core.compaction.summary_prompts import (
    merge_request,
    repair_request,
    summary_request,
    warm_instruction,
)
from shared.core.context.agents import LOOK_AT_PICTURE, useful_tools
from shared.core.context.prompts import (
    default_layers,
    describe_picture,
    flush_instruction,
    helper_prompt,
    operator_text,
    reminder_entry,
    system_text,
)
from shared.core.session.ledger import Ledger
from shared.core.session.summary_strategy import SummaryForm
from shared.core.values.messages import ToolSpec
from shared.core.values.tokens import tool_text
from shared.services.tools.handover import ASK_HUMAN

PERSONAL = tuple(tool for tool in BUILT_IN_TOOLS if tool.name != ASK_HUMAN.name)
"""What a deployment offers that nobody has configured."""
FIRST = tuple(tool for tool in useful_tools(PERSONAL, has_notes=False) if tool.name != LOOK_AT_PICTURE.name)


def words(tools: tuple[ToolSpec, ...]) -> str:
    return "\n".join(map(tool_text, tools))


def prompts() -> Mapping[str, str]:
    """Each kind of request without what people said in it."""
    now = "2000-01-01 09:00 (UTC)"
    system = system_text(default_layers())
    found = {
        "system": system,
        "tools at first": words(FIRST),
        "tools in all": words(PERSONAL),
        "fixed prefix at first": f"{system}\n{words(FIRST)}",
        "fixed prefix in all": f"{system}\n{words(PERSONAL)}",
        "flush": flush_instruction(now=now),
        "flush of its own": note_rules("request"),
        "flush by a schema": note_rules("json"),
        "flush by lines": note_rules("lines"),
        "merge": "\n".join(merge_request(Ledger(), ())),
        "summary on the warm prefix": warm_instruction("", Ledger()),
        "repair": repair_request(""),
        "subagent": helper_prompt(),
        "reminder": reminder_entry("", asked=now, due=now),
        "operator": operator_text(""),
        "picture": describe_picture(),
    }
    forms = {f"summary, {form}": "\n".join(summary_request("", Ledger(), form=form, most_words=400))
             for form in get_args(SummaryForm)}  # fmt: skip
    return {**found, **forms}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--show", nargs="*", default=[])
    given = parser.parse_args()
    told = prompts()
    if given.show:
        print("\n\n".join(f"--- {name}\n{told[name]}" for name in told if name in given.show))
        return
    count = VocabularyCounter().count_tokens
    sizes = {name: count(text) for name, text in told.items()}
    print(json.dumps(sizes) if given.json else "\n".join(f"{n:6}  {name}" for name, n in sizes.items()))


if __name__ == "__main__":
    main()
