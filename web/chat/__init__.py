"""One visitor's conversation, over a WebSocket or over an event stream.

A message passes `socket_chat` (the wire), `socket_session` (what a frame does) and `message_intake` (store,
then acknowledge). Begin with `socket_session.SocketSession`.
"""
