"""Checks the invariants of a cluster. The checkers see only plain observations, and share no code with the code under
test."""
