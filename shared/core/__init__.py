"""The pure heart of Evertalk: values and decisions, no I/O, no clock, no packages."""
