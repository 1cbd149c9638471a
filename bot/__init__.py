"""Process that talks with people on chat networks such as Telegram.

The only process that holds bot tokens.
"""
