"""How updates come in.

`inbox` or `webhook` stores a batch before it acknowledges it. `inbox` then reads it in order, `update_parser`
makes plain values of it, and `message_batching` decides which messages are one turn. Begin with `inbox`.
"""
