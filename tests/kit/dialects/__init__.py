"""Dialects of model servers as data: what a server sends, and what Evertalk is expected to make of it."""
