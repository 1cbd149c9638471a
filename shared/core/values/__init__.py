"""Values that everything else is made of.

Messages, models, tokens, money, errors, and small pure helpers for text. Imports nothing of the house.
Begin with `messages` and `errors`.
"""
