"""The web channel: WebSocket chat, widget, pages and REST, in one process.

`app` puts the process together, `routes` lists its addresses, `chat` has the way of a message. Begin with
`app`.
"""

from __future__ import annotations
