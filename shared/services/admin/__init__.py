"""Services for operators. Alerts are opened, sent and resolved; jobs and deliveries are retried or cancelled;
the inspector shows the request of a model call and the contents of the next one. Begin with
`context_inspector`.
"""
