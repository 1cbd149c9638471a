"""Protocol v1 between browsers and the server; `wire` parses and builds its frames."""
