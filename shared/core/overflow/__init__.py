"""What to do when a request does not fit.

`overflow_recovery` hides the oldest turns behind a digest until the request fits; `request_trace` says which
entry each block of a request came from. Begin with `overflow_recovery`.
"""
