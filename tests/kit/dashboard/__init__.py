"""The dashboard for tests: `fixtures.py` has an operator who is logged in, `serve.py` serves it alone,
the `*seed*.py` modules write rows to look at.
"""
