"""The command line: one file a command, found by the table in `main`."""
