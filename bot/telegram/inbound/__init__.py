"""How updates come in.

`polling` or `webhook` stores a batch before it acknowledges it, `update_parser` makes plain values of it,
`inbox_reader` and `message_batching` decide which messages are one turn. Begin with `polling`.
"""
