"""Stores of the Telegram channel.

`inbox` keeps updates until they are handled, and `receipts` ends them with the message that they became.
`deliveries` records which part of an answer reached its chat, `chats` has every chat and its settings,
`access` says who may write, and `uncertain_notices` notifies people whose answer may not have arrived. Begin
with `inbox`.
"""
