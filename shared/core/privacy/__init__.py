"""Erasure, retention and export.

`erasure` has the values of a person's request, `export` writes the data of a person as Markdown or JSON.
"""
