"""Postgres, the authoritative store: tables, migrations at start, and one store class per subject.

Begin with `db.pool`, then with the room of a subject.
"""
