"""Stores for erasure, retention and export of people's data.

`erasure_map` says what an erasure does with each table, and a test compares it with the schema. Begin with
`erasure_map`.
"""
