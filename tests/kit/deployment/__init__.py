"""Web, bot and worker as real processes on servers that a test can kill, and the people who talk with them.

`breakable_servers.py` has the servers and the verdict of a case, `processes.py` starts a process, `forks.py`
starts one without the seconds of importing.
"""
