"""Reading of other programs' exports as a stream with limited memory.

Begin with `exports`, which knows the forms of Telegram, ChatGPT and Claude; `whatsapp` reads a chat's text.
"""
