"""Stores of a conversation's log and its turns.

`turns` accepts, claims and ends a turn, each in one commit; `allowance` leases slices of the day's budget.
What a channel stores with a message comes as a receipt. Begin with `turns.PostgresTurns`.
"""
