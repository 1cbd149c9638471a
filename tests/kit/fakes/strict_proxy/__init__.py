"""Stand-in for a proxy of a company or a telephone network, strict about what passes."""
