"""What operators do and see beside conversations.

Alerts are opened, sent and resolved; jobs and deliveries are retried or cancelled; the inspector shows what
a model was sent and what the next request will hold. Begin with `context_inspector`.
"""
