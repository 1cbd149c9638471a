"""Data rights of people: erasure, retention, export.

An erasure is recorded first and then carried out in steps that survive a crash; retention deletes what is
older than its period; an export is streamed. Begin with `erasure`.
"""
