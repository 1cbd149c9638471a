"""A strict push service, as a process of its own: it believes signed and encrypted messages only."""
