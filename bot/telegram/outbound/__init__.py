"""How answers reach a chat, exactly once.

`streaming_reply` shows an answer while it is written, `final_delivery` brings its end and resumes after a
crash or a 429, `uncertain_notices` tells people of what may not have arrived. Begin with `delivery`.
"""
