"""The web channel for tests: `fixtures.py` starts it with scripted services, `callers.py` has everybody
who may come to REST, `event_stream_client.py` is a browser without WebSocket.
"""
