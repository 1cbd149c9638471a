"""The only place where parts are put together.

`app.open_app` connects to the servers and builds every store, adapter and service; `process` gives them a
loop and signals. Nothing below this room constructs a store. Begin with `app`.
"""
