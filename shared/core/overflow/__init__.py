"""What to do when a request does not fit.

`overflow_recovery` is the ladder from pruning to an inline digest; `request_trace` says which entry each
block of a request came from. Begin with `overflow_recovery`.
"""
