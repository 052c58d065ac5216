"""This module has no Python interface. Python code writes rows through `columns`."""
