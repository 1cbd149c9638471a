"""Speech: recordings are transcribed once and then treated as text; answers are read aloud on request.

See `hearing`.
"""
