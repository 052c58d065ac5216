"""Finds the end of a closed segment. Native code only."""
