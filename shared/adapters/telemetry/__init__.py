"""Telemetry of a process.

`heartbeat` sends heartbeats from a separate thread, `health` is the report stored with each, `otlp_traces`
sends traces.
"""
