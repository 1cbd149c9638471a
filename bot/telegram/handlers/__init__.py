"""Handlers of what people send. `update_handler` checks access, runs a command or stores a turn;
`callback_queries` answers buttons. Begin with `update_handler`.
"""
