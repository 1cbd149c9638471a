"""A strict OpenID Connect provider on loopback: refuses what the standards refuse, and lies when told to."""
