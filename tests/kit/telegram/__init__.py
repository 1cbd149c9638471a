"""The bot as a process beside the fake Telegram (`bot_process.py`), a whole deployment of it
(`deployment.py`), and updates made by hand (`updates.py`).
"""
