"""Attacks in words, and where they can enter."""
