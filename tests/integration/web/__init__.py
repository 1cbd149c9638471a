"""The web channel, over real sockets."""

from __future__ import annotations
