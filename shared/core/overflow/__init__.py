"""Requests that do not fit into the model's window.

`overflow_recovery` hides the oldest turns with a digest until the request fits; `request_trace` says which
entry each block of a request came from. Begin with `overflow_recovery`.
"""
