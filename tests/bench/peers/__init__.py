"""The same recorded talk through the running system under each preset, and through an ideal loop."""
