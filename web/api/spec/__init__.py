"""What REST offers, as data: each operation with who may call it, its parameters and its shapes. The
router and `/api/v1/openapi.json` come from these tables. Begin with `operations`.
"""
