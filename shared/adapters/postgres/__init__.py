"""Postgres, the truth: tables, migrations at start, and one store per need."""
