"""Rows of the Telegram channel.

`inbox` keeps updates until they are handled, `chats` knows every chat and its settings, `access` who may
write. Begin with `inbox`.
"""
