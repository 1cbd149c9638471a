"""What went wrong in public elsewhere, as tests that would catch it here."""
