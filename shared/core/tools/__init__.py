"""Tools for models: tools of MCP servers as plain values, addresses and pages that may be fetched, and due
times of reminders.
"""
