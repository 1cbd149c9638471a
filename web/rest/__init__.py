"""REST as one table: each operation is registered once, beside its handler, with who may come, what it
takes and what it answers; the router, the access table and `/api/v1/openapi.json` come from it. Programs
come with an API key. Begin with `operation`.
"""
