"""`evertalk replay`: recorded conversations, played through the running system by somebody who counts."""

from __future__ import annotations

from tests.kit.replay.command import main

__all__ = ["main"]
