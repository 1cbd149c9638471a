"""Services: what happens to a message, what background jobs do, and what commands answer.

Begin with `turns`.
"""
