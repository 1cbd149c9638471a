"""Receives updates from Telegram.

The poller in `inbox` or the handler in `webhook` stores updates before it acknowledges them. The reader in
`inbox` then reads them in order, `update_parser` makes plain values of them, and `message_batching` decides
which messages make one turn. Begin with `inbox`.
"""
