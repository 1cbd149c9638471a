"""HTTP server of the web process.

Contains its limits, the origin of requests, pages and static files, the hub that sends the events of a
conversation to all connected clients, and the queue of each connection. Begin with `hub.Hub`.
"""
