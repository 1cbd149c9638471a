"""Plays recorded conversations through the running system (`evertalk replay`) and counts lost or wrong
answers.
"""

from __future__ import annotations

from tests.kit.replay.command import main

__all__ = ["main"]
