"""The log of a conversation and its turns.

`turns` accepts, claims and ends a turn, each in one commit; `allowance` leases slices of the day's money;
`deliveries` keeps which part of an answer reached its chat. Begin with `turns.PostgresTurns`.
"""
