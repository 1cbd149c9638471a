"""Tests that look at Evertalk through a real browser."""
