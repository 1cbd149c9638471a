"""Supervision of processes.

A child process is started, its output read, and restarted when it ends; it touches a file with each
heartbeat, and its successor takes over its leases. The daily backup and the secrets of each process belong
here, too. `cli/up` runs the loop. Begin with `child_process`.
"""
