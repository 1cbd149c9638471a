"""Operations: alerts and when they open, names of backups, service units, and figures of the dashboard."""
