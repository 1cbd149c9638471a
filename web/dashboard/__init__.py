"""The operator dashboard: pages, their JSON and `/metrics`, all of it read from Postgres."""

from __future__ import annotations

from web.dashboard.routes import OPERATIONS, Dashboard, add_dashboard, build_dashboard

__all__ = ["OPERATIONS", "Dashboard", "add_dashboard", "build_dashboard"]
