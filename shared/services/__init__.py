"""The story: what happens to a message, what the silent jobs do, what commands answer."""
