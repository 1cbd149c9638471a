"""Runs the bots of this process.

`service` starts and closes all of them, `bot_runner` runs one bot while this process holds its lease. Begin
with `service`.
"""
