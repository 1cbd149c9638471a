"""Runs silent jobs; it has no way to a person."""
