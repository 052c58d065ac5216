"""A node: its roles, put together from the packages below, and one handler for each API."""
