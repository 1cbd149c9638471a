"""Built-in tools for the model, except those for memory and those that need a turn's own parts.

Recall and the tools for notes are in `services/memory`, delegation to a helper in `services/turns`, and
fetching pages in `adapters/files`. `bootstrap/build_turns.py` puts all of them together.

The calculator and the clock need only their arguments; reminders and the handover to an operator also have a
service that acts at a later time. Begin with `current_time`.
"""
