"""One bot from its token to its last answer.

`service` owns all bots of the process, `bot_runner` runs one under its lease. Begin with `service`.
"""
