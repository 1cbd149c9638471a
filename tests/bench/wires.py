"""Replay of made-up conversations on each wire, against a strict model server."""

from __future__ import annotations

import argparse
import io
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, get_args

from tests.kit.replay.command import main as replay
from tests.kit.replay.strict_server import Wire

TURNS, TURNS_OF_ONE = 500, 50
WINDOW = 12_000
"""Context window: each conversation is summarised several times."""
SENTENCE = "I walked along the river to the old bridge, then bought three pears and a map of the hills. "
SHOWN = (
    "sent",
    "answered",
    "lost",
    "doubled",
    "out_of_order",
    "requests",
    "invalid",
    "compactions",
    "seconds",
)


def write_recording(path: Path, *, turns: int) -> None:
    """Write conversations of at most `TURNS_OF_ONE` turns in the format that the replay reads."""
    talks = []
    for first in range(0, turns, TURNS_OF_ONE):
        lines = [
            {"speaker": speaker, "dia_id": f"D1:{number}", "text": f"{number}: {SENTENCE * (1 + number % 7)}"}
            for number in range(first, min(turns, first + TURNS_OF_ONE))
            for speaker in ("Ada", "Ben")
        ]
        talk = {"speaker_a": "Ada", "speaker_b": "Ben", "session_1": lines,
                "session_1_date_time": "1:56 pm on 8 May, 2023"}  # fmt: skip
        talks.append({"sample_id": f"talk-{first}", "conversation": talk})
    path.write_text(json.dumps(talks))


def measure(*, turns: int, wires: Sequence[Wire] = get_args(Wire)) -> dict[str, Mapping[str, Any]]:
    """Return the figures of the replay by wire."""
    found: dict[str, Mapping[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="evertalk-wires-") as folder:
        path = Path(folder) / "talks.json"
        write_recording(path, turns=turns)
        for wire in wires:
            printed = io.StringIO()
            with redirect_stdout(printed):
                replay([str(path), "--wire", wire, "--window", str(WINDOW), "--json"])
            found[wire] = json.loads(printed.getvalue())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=TURNS, help="messages on each wire")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    wish = parser.parse_args()
    found = measure(turns=wish.turns)
    shown = {wire: {name: figures.get(name) for name in SHOWN} for wire, figures in found.items()}
    if wish.json:
        sys.stdout.write(json.dumps(shown) + "\n")
        return
    for wire, figures in shown.items():
        sys.stdout.write(
            f"{wire:<10} " + ", ".join(f"{name} {value}" for name, value in figures.items()) + "\n"
        )


if __name__ == "__main__":
    main()
