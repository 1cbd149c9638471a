"""One bot from its token to its last answer.

`service` owns all bots of the process, `bot_runner` runs one under its lease, `turn_dispatch` answers
turns that a dead process left. Begin with `service`.
"""
