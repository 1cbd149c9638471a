"""What keeps processes running, seen from outside and from within.

A child process is started, read and restarted; it touches a file with each heartbeat, and its successor
takes over its leases. The daily backup and the secrets that each process gets belong here, too; the loop
that uses all this is `cli/up`. Begin with `child_process`.
"""
