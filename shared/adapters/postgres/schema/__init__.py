"""Every table, declared once.

The migrations must make the same: a test compares both by `pg_dump`.
"""
