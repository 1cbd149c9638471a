"""How bytes come in and go out, whatever they mean: the HTTP server and its limits, where a request comes
from, pages and static files, the hub that brings a session's events to every open screen, and the queue
in front of each socket. Begin with `hub.Hub`.
"""
