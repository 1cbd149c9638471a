"""Talks to the Bot API: one aiogram `Bot` makes every call.

`session` is its HTTP session, `middlewares` let a call wait for its turn, hold back after a rate limit, retry
and end as a typed outcome. `calls` has those outcomes and the queue. `sender` has the calls that chats see.
Begin with `session`.
"""
