"""Slash commands, the same on every channel.

`command_service` finds the handler, runs it and stores its answer; each other module has the handlers of one
subject. Begin with `command_service`, then `command_call` for what a handler receives.
"""
