"""A strict fake of a server that ranks passages, run as a process; see `server`."""
