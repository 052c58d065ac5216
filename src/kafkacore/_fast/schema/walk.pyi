"""This module has no Python interface. Messages, views and columns use the walker."""
