"""Conversation with one visitor, over a WebSocket, an event stream or long polling.

A message passes `socket_chat` (reads frames), `socket_session` (carries a frame out and acknowledges it) and
`message_intake` (stores the message, shows it and starts its answer). Begin with
`socket_session.SocketSession`.
"""
