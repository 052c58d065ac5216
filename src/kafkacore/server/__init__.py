"""A node: assembled by its roles from the rooms below, with one handler for each API."""
