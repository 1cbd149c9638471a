"""Command `evertalk demo`: tries out a channel in the terminal, without an account."""

from __future__ import annotations

from tests.kit.demo.command import main

__all__ = ["main"]
