"""Dialects of model servers as data: what a server sends, and what Evertalk must make of it."""
