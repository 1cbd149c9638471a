"""Framework of the REST interface.

Each operation is registered once, at its handler, with its callers, arguments and answers. Routes, access
checks and `/api/v1/openapi.json` are made from that table. Programs authenticate with an API key. Begin with
`operation`.
"""
