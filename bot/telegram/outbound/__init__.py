"""How answers reach a chat, exactly once.

`delivery` answers turns, also those that a crashed process left. `streaming_reply` shows an answer while it
is written, `final_delivery` delivers its end and resumes after a crash or a 429, `uncertain_notices` reports
what may not have arrived. Begin with `delivery`.
"""
