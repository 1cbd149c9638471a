"""Way of a message to its answer.

`session_service` accepts and stores the message, claims the turn under a lease and commits the result;
`turn_dispatcher` runs one answer per session at a time in the process of the channel; `agent_loop` makes one
attempt; `model_caller` pays for and sends each request that `request_builder` builds; `tool_rounds` runs
tools in between. Begin with `session_service.SessionService.answer`.
"""
