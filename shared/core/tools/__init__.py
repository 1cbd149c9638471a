"""Values that tools of models work with: tools of MCP servers, web addresses and pages that may be fetched,
and due times of reminders.

The tools themselves are in `shared/services` and `shared/adapters`.
"""
