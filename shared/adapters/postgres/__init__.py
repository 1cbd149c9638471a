"""Postgres, the authoritative store: tables, migrations at start, and one store class per subject."""
