"""The command line: each command has a file, which the table in `main` names."""
