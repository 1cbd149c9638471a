"""The operator dashboard: pages, their JSON and `/metrics`, all of it read from Postgres."""

from __future__ import annotations

from web.dashboard.routes import DESK, OPERATIONS, Dashboard, add_dashboard

__all__ = ["DESK", "OPERATIONS", "Dashboard", "add_dashboard"]
