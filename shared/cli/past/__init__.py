"""`evertalk import`: `arguments` says what can be typed, `importing` does it."""
