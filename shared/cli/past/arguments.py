"""Arguments of `evertalk import`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

PROGRAMS = ("telegram", "chatgpt", "claude", "whatsapp")
"""Programs whose exports can be imported."""


def read_import_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments; if they are invalid, print a usage line and exit with status 2."""
    parser = argparse.ArgumentParser(
        prog="evertalk import",
        description="Import messages of other programs as an earlier conversation of a person: "
        "they can be searched and recalled. The same command again resumes an import.",
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    files = {
        "telegram": "result.json of Telegram Desktop (export as JSON)",
        "chatgpt": "conversations.json of ChatGPT's export",
        "claude": "conversations.json of Claude's export",
        "whatsapp": "the text file of WhatsApp's export of a chat",
    }
    for name in PROGRAMS:
        verb = verbs.add_parser(name, help=files[name])
        verb.add_argument("file", metavar="FILE", type=Path)
        if name in ("telegram", "whatsapp"):
            verb.add_argument("--me", default="", metavar="NAME", help="the person's name in the file")
    listed = verbs.add_parser("list", help="list the imports of a person")
    undo = verbs.add_parser("undo", help="erase all that an import brought")
    summarise = verbs.add_parser("summarise", help="summarise an import, or resume its summaries")
    stop = verbs.add_parser("stop", help="stop the summaries of an import")
    for verb in (undo, summarise, stop):
        verb.add_argument("import_id", metavar="ID", type=UUID)
    for verb in (*map(verbs.choices.__getitem__, PROGRAMS), listed, undo, summarise, stop):
        verb.add_argument(
            "--person", metavar="ID", type=UUID, help="whose past it is; needed if there are several people"
        )
    return parser.parse_args(arguments)
