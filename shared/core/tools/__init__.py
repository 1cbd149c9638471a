"""What a model may call.

Tools of MCP servers as plain values, addresses and pages that may be fetched, and when reminders are due.
"""
