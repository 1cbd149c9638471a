"""Values for the tools of models: tools of MCP servers, web addresses and pages that may be fetched, and due
times of reminders.
"""
