"""What a process says of itself.

`heartbeat` beats in a thread of its own, `health` is what goes out with each beat, `otlp_traces` sends
traces.
"""
