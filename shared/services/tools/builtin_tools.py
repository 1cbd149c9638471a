"""Tools that need nothing but their arguments and a clock."""
