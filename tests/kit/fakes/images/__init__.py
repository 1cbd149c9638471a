"""A strict fake of a server that makes pictures, run as a process; see `server`."""
