"""Erasure, retention and export.

`erasure_map` says of every table what happens to it, and a test compares it with the schema. Begin with
`erasure_map`.
"""
