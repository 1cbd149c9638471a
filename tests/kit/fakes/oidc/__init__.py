"""A strict OpenID Connect provider on loopback that can be told to answer with forged tokens."""
