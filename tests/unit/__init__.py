"""Tests without a server, a database or a socket: values made by hand, pure functions and services over
in-memory doubles. Folders are the floors and rooms of the product: whoever reads `shared/core/compaction`
finds its tests in `tests/unit/core/compaction`. Begin with `core/presets/test_presets.py` and
`core/context/test_context.py`.
"""
