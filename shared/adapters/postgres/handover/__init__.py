"""Hand-over to operators: who waits for one, who has which conversation, and what operators write beside it.

Begin with `handovers`: it says who answers. `inbox` holds what only operators see, and `push` whom to notify.
"""
