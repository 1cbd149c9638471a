"""Copies of everything, other states in their place, upgrades, and what keeps it running."""
