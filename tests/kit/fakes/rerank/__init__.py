"""A strict stand-in for a server that orders passages, as a process of its own; begin with `server`."""
