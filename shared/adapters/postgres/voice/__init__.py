"""Answers that are read aloud: which are wanted, which are made, and what became of them."""
