"""What people say aloud: heard and paid once, and from then on words like any others. See `hearing`."""
