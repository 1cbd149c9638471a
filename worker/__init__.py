"""Process that runs silent jobs; it cannot send anything to a person."""
