"""What people can rely on, tried: real processes and servers are killed, stopped, emptied and cut off."""
