"""Values that all other rooms use.

Messages, models, tokens, money, errors, and small pure helpers for text. Imports no other room. Begin with
`messages` and `errors`.
"""
