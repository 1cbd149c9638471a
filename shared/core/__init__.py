"""Pure core of Evertalk: values and decisions, without I/O, clock and third-party packages."""
