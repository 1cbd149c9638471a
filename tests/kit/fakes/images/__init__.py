"""A strict stand-in for a server that makes pictures, as a process of its own; begin with `server`."""
