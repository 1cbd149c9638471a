"""A strict fake of a server that speaks Chat Completions, built on the fake of the Messages API.

A request must fit the schema of OpenAI's SDK, and every call of a tool must be answered where it stands.
"""
