"""Operations: alerts and when they begin, names of backups, service units, and figures of the dashboard."""
