"""Dashboard for tests: `fixtures.py` has a logged-in operator, `serve.py` serves it alone, and the
`*seed*.py` modules insert rows to look at.
"""
