"""`goclaw`: GoClaw, as OpenClaw with early flushes, checkpoints and a separate summary model."""

from __future__ import annotations

from dataclasses import replace

from shared.core.presets.openclaw import PRESET as OPENCLAW

PRESET = replace(
    OPENCLAW,
    name="goclaw",
    timing=replace(OPENCLAW.timing, flush_shares=(0.50, 0.75, 0.90), checkpoints=True),
    writing=replace(OPENCLAW.writing, summariser="cheap"),
)
