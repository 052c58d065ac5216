"""The command line. Each command has its own module, which a table in `main` names."""
