"""Code that the processes of Evertalk share."""
