"""Erasure, retention and export. `erasure` gives the meaning of a person's request, `export` writes the data
of a person as Markdown or JSON.
"""
