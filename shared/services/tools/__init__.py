"""Built-in tools for the model that do not concern memory.

The calculator and the clock need only their arguments; reminders and the handover to an operator also have a
service that acts at a later time. Begin with `current_time`.
"""
