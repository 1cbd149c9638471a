"""A strict fake of a server that embeds texts, run as a process; see `server`."""
