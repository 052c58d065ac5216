"""A node: its roles, which use the packages below this one, and one handler for each API."""
