"""Talks with people on chat networks: one process, the only one that holds a bot token."""
