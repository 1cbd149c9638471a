"""PostgreSQL and Valkey as child processes on unix sockets, for machines that have neither."""

from __future__ import annotations

from shared.adapters.embedded.errors import EmbeddedServerFailed
from shared.adapters.embedded.servers import EmbeddedChoice, EmbeddedServers

__all__ = ["EmbeddedServerFailed", "EmbeddedServers", "EmbeddedChoice"]
