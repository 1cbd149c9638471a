"""A recorded talk, as the replay reads it."""

from __future__ import annotations

import json
from pathlib import Path

LONG = "I walked along the river to the old bridge, then bought three pears and a map of the northern hills. "


def recording(folder: Path, *, messages: int = 6, repeat: int = 1) -> Path:
    lines = [
        {"speaker": speaker, "dia_id": f"D1:{number}", "text": f"{number}: {LONG * repeat}"}
        for number in range(messages)
        for speaker in ("Ada", "Ben")
    ]
    talk = {
        "speaker_a": "Ada",
        "speaker_b": "Ben",
        "session_1_date_time": "1:56 pm on 8 May, 2023",
        "session_1": lines,
        "session_2_date_time": "never happened",
    }
    path = folder / "recording.json"
    path.write_text(json.dumps([{"sample_id": "one", "conversation": talk}]))
    return path
