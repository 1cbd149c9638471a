"""A strict stand-in for a server that embeds texts, as a process of its own; begin with `server`."""
