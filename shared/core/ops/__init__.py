"""What operators look after.

Alerts and when they open, the names of backups, service units, and the figures of the dashboard.
"""
