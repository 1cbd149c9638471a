"""Built-in tools for the model that are not about memory.

The calculator and the clock need only their arguments; reminders and the handover to a person also have a
service that acts when a time has come. Begin with `calculator`, the smallest.
"""
