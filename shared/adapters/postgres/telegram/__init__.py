"""Rows of the Telegram channel.

`inbox` keeps updates until they are handled, `chats` knows every chat and its settings, `access` who may
write, `uncertain_notices` whom to tell that an answer may not have arrived. Begin with `inbox`.
"""
