"""A node: its roles, which use the packages below this one, and a handler for each API."""
