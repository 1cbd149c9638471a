"""Delivers answers to their chats exactly once.

`delivery` answers turns, also those that a crashed process left. `streaming_reply` shows an answer while the
model writes it, `final_delivery` delivers the ended answer and resumes after a crash or a 429,
`uncertain_notices` reports answers that may not have arrived. Begin with `delivery`.
"""
