"""Runs the bot as a process beside the fake Telegram.

`bot_process.py` runs the process, `deployment.py` a whole deployment, and `updates.py` builds updates.
"""
