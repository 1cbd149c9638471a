"""Telemetry of a process. `heartbeat` beats in a separate thread, `health` is stored with each beat,
`otlp_traces` sends traces.
"""
