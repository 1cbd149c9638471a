"""Measurements: ratios, counts and memory, printed for people and programs; nothing here is a timed test."""
