"""Store of answers that are read aloud."""
