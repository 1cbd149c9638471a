"""Puts the parts of the program together; stores are constructed only here.

`app.open_app` connects to the servers and builds every store, adapter and service; `process` runs them with
an event loop and signals. Begin with `app`.
"""
