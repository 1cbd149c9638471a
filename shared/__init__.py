"""Everything that Evertalk's processes have in common."""
