"""Hand-overs of conversations to operators: requests, who answers, and what operators write among themselves.

Begin with `handovers`, which says who answers. `inbox` has what only operators see, and `push` whom to
notify.
"""
