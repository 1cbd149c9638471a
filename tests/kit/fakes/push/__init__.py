"""A strict push service, run as a process: it accepts only messages that are signed and encrypted
correctly.
"""
