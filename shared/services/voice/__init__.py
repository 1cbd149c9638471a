"""Speech of people: transcribed and paid once, then treated as text. See `hearing`."""
