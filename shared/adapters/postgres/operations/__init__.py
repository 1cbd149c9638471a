"""Operations on a whole database.

`invariants` checks every promise, `dump` and `restore` carry the data, `roles` gives each process few rights.
Begin with `invariants`.
"""
