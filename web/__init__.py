"""The web channel: WebSocket chat, widget, pages and REST, in one process."""

from __future__ import annotations
