"""Exports of other programs, read as a stream with bounded memory.

Begin with `exports`, which knows the forms of Telegram, ChatGPT and Claude; `whatsapp` reads a chat's text.
"""
