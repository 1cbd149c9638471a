"""`evertalk demo`: a channel tried out at the terminal, without an account anywhere."""

from __future__ import annotations

from tests.kit.demo.command import main

__all__ = ["main"]
