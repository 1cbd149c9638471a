"""Tests of the chat for web pages against a strict stub of the server."""
