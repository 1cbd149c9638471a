"""The same conversations under every preset: tokens, dollars, and what can still be reached."""
