"""Way of a message to its answer.

`session_service` accepts and stores the message, claims the turn under a lease and commits the result;
`agent_loop` makes one attempt; `model_caller` builds, pays for and sends each request; `tool_rounds` runs
tools in between. Begin with `session_service.SessionService.answer`.
"""
