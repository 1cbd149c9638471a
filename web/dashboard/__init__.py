"""The operator dashboard: pages, their JSON and `/metrics`, all of it read from Postgres.

All pages are one HTML file; its script `web/static/dashboard/main.js` loads the module of the address.
`routes` builds the handlers, each in the module of its subject; `api` has overview and sessions. Begin with
`routes`.
"""

from __future__ import annotations

from web.dashboard.routes import OPERATIONS, Dashboard, build_dashboard

__all__ = ["OPERATIONS", "Dashboard", "build_dashboard"]
