"""Services for operators. Alerts are opened, sent and resolved; jobs and deliveries are retried or cancelled;
the inspector shows the request of a model call and the contents of the next one. What a verb of the shell and
its REST operation both change has one service, such as `agent_service`. Begin with `context_inspector`.
"""
