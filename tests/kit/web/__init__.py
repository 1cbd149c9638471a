"""The web channel for tests.

`fixtures.py` starts it with scripted services, `callers.py` makes all kinds of REST callers, and
`event_stream_client.py` is a browser without WebSocket.
"""
