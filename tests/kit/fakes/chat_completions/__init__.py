"""A strict stand-in for servers that speak Chat Completions, with the mind and script of the other fake.

A request must fit the schema that OpenAI's SDK has of it, and calls of tools must be answered in their place.
"""
